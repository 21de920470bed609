"""Indexes of messages that are looked at only when the messages are in a run.

Finds: other indexes than those before sealing, and look-ups of many that read a batch of the run
for each queue.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.log.reading.run_index import RunIndex

QUEUES, PUTS, BATCH_ROWS = 400, 300, 25


def _put(queues: kmq.KeyedQueues, seed: int) -> list[tuple[list[str], object]]:
    """What was put in each call, and the answers, which nobody looked at yet."""
    drawn, put = random.Random(seed), []
    for _ in range(6):
        names = [f"queue {drawn.randrange(QUEUES):03}" for _ in range(PUTS)]
        put.append((names, queues.put_batch(names, [b"x"] * PUTS)))
    return put


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_indexes_are_the_same_behind_sealing_and_read_each_batch_of_a_run_once(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
):
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path, maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        if deleted:  # so that the run has fewer messages than offsets
            queues.put_batch(["other"] * 9, [b"y"] * 9)
        put = _put(queues, seed)
        if deleted:
            queues.delete("other")
        store.seal()
        expected = dict.fromkeys((name for names, _ in put for name in names), 0)
        decoded = []
        read = RunIndex._stored
        monkeypatch.setattr(
            RunIndex, "_stored", lambda *asked: decoded.append(asked[1]) or read(*asked)
        )
        for names, indexes in put:
            decoded.clear()
            assert indexes == _indexes(names, expected)
            assert len(decoded) <= 2 * (6 * PUTS // BATCH_ROWS + 2)


def _indexes(names: list[str], known: dict[str, int]) -> list[int]:
    found = []
    for name in names:
        found.append(known[name])
        known[name] += 1
    return found
