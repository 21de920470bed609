"""The golden store of topics that a queue left says for ever who had what of them."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from kmq_storage.log.state.queues.queues import Queue
from tests.data.make_golden_left import AGAIN, LATER, LEFT, make
from tests.support.golden import DATA, in_each_kind, state_of

GOLDEN = DATA / "format-1-left"
folder = in_each_kind(GOLDEN, make)


def test_what_was_held_of_a_topic_when_its_queue_left_it_is_remembered(folder: Path) -> None:
    ((key, rows),) = _queue(folder).left
    assert key == (LEFT, 0)
    assert rows["offset"].tolist() == [1, 2, 3, 4]
    assert rows["count"].tolist() == [1] * 4
    assert (rows["at"] >= LATER).all()


def test_what_is_read_again_is_held_as_before(folder: Path) -> None:
    held = _queue(folder).unfinished((AGAIN, 0), 5, LATER - 1, None)
    assert held["offset"].tolist() == [0, 1, 2, 3, 4]
    assert held["count"].tolist() == [0, 1, 1, 1, 1]


def test_receivers_go_on_there(folder: Path) -> None:
    with kmq.open(folder, create=False, maintenance=False) as store:
        received = store.queue("mails").receive(100)  # the locks ended years ago
        assert sorted((each.topic, each.offset, each.delivery_count) for each in received) == [
            ("again", 0, 1),
            *(("again", offset, 2) for offset in range(1, 5)),
        ]


def _queue(folder: Path) -> Queue:
    return state_of(folder).queue("mails")
