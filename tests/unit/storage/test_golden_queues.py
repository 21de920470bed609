"""The golden store of queues stays readable, and what reads and writes it goes on from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kmq_spark as kmq
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.log.state.queues.snapshot import queues_snapshot
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import QueueStats
from tests.data.make_golden_queues import (
    KEYED,
    LATER,
    MUCH_LATER,
    PLAIN,
    SETTINGS,
    TOPIC,
    make,
)
from tests.support.golden import DATA, copied, state_of

GOLDEN = DATA / "format-1-queues"
folder = copied(GOLDEN)


def _rows(state: StoreState) -> list[Any]:
    return [
        (queue.name, key, source.next, source.rows.all().tolist())
        for queue in state.queues
        for key, source in sorted(queue.sources.items())
    ]


def test_the_golden_queues_come_back_with_what_each_record_is_at(folder: Path):
    state = state_of(folder)
    assert [queue.name for queue in state.queues] == ["plain", "keyed"]
    plain, keyed = state.queue("plain"), state.queue("keyed")
    assert plain.settings == SETTINGS
    assert plain.stats(spans_of(state, plain), LATER - 1, {}) == QueueStats(
        ready=7, locked=4, delayed=0, delivered=10, acked=1, dead=2, expired=0
    )
    rows = plain.unfinished((TOPIC, 0), 5, LATER - 1, None)
    assert rows["offset"].tolist() == [1, 2, 3, 4]
    assert rows["count"].tolist() == [2, 1, 0, 1]
    assert rows["at"].tolist()[1:3] == [MUCH_LATER, 0]
    assert rows["at"][3] > LATER
    assert plain.unfinished((PLAIN, 0), 5, 0, None)["expires"].tolist() == [LATER, NEVER]
    assert keyed.bindings[TOPIC].periods == (((0, 0), "n >= 2"), ((5, 5), None))
    looked = keyed.unfinished((TOPIC, 0), 5, 0, None)
    assert looked["key"].tolist() == [7, 0, 7]
    assert looked["count"].tolist() == [1, 0, 0]
    assert KEYED in [topic.id for topic in state.topics.values()]


def test_the_log_alone_says_the_same_as_the_checkpoint_and_the_rest(folder: Path):
    with_checkpoint = state_of(folder)
    shutil.rmtree(folder / "checkpoints")
    without = state_of(folder)
    assert queues_snapshot(without.queues) == queues_snapshot(with_checkpoint.queues)
    assert _rows(without) == _rows(with_checkpoint)


def test_receivers_go_on_in_the_golden_queues(folder: Path):
    with kmq.open(folder, create=False, maintenance=False) as store:
        # The locks ended years ago, but for one record that was extended into 2023, too.
        received = store.queue("plain").receive(100)
        assert sorted((each.topic or "", each.offset) for each in received) == [
            *(("", offset) for offset in (4,)),
            *(("t", offset) for offset in (0, 1, 2, 2, 3, 3, 4, 4)),
        ]
        assert [info.name for info in store.queues()] == ["dead", "keyed", "plain"]
        (letter,) = store.queue("dead").receive(100)
        assert (letter.value, letter.properties["dead_letter_count"]) == (b"value 1", 2)
        assert len(store.queue("keyed").receive(100)) == 6


def test_the_maker_makes_the_same_log(tmp_path: Path):
    make(tmp_path / "store")
    assert _rows(state_of(tmp_path / "store")) == _rows(state_of(GOLDEN))
