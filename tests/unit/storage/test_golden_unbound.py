"""The golden store of a topic that was bound anew tells every delivery from all others."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.errors import LeaseExpiredError
from kmq_storage.format.delivery_numbers import DELIVERIES_APART
from kmq_storage.format.queue_entries import ACK, AnswerEntry, Run
from kmq_storage.log.binding.binding import Unit
from tests.data.make_golden_unbound import QUEUE, TOPIC, make
from tests.data.making import BEGIN_US
from tests.support.golden import DATA, in_each_kind, state_of
from tests.support.storage import open_folder

GOLDEN = DATA / "format-1-unbound"
folder = in_each_kind(GOLDEN, make)


def test_who_holds_a_record_is_told_with_the_binding_of_its_first_delivery(folder: Path) -> None:
    queue = state_of(folder).queue("mails")
    assert queue.unbound == {TOPIC: 2}
    rows = queue.unfinished((TOPIC, 0), 5, BEGIN_US, None)
    second, third = DELIVERIES_APART + 1, 2 * DELIVERIES_APART + 1
    assert rows["count"].tolist() == [third, second, second, second, 0]


def test_only_the_last_delivery_of_a_record_is_answered(folder: Path) -> None:
    log = open_folder(folder)
    for delivery in (1, DELIVERIES_APART + 1):
        with pytest.raises(LeaseExpiredError):
            log.commit([Unit((_ack(delivery),))])
    log.commit([Unit((_ack(2 * DELIVERIES_APART + 1),))])
    log.close()


def test_receivers_go_on_there(folder: Path) -> None:
    with kmq.open(folder, create=False, maintenance=False) as store:
        received = store.queue("mails").receive(100)  # the locks ended years ago
        counts = [each.delivery_count for each in received]
        assert counts == [2, 2, 2, 2, 1]


def _ack(delivery: int) -> AnswerEntry:
    return AnswerEntry(QUEUE, ACK, BEGIN_US, 0, (Run(TOPIC, 0, 0, 1, delivery),))
