"""What unfinished records of a queue take in memory.

Finds: blocks that keep the array alive which their rows were copied from, so that each row is held
twice, and a checkpoint that is read with two more copies of all rows.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import Queues
from kmq_storage.log.state.queues.rows import LOCKED, ROW, new_rows
from kmq_storage.log.state.queues.snapshot import queues_snapshot, restore_queues, rows_snapshot
from kmq_storage.model import QueueSettings

_RECORDS = 200_000
#: Blocks have room for some more rows.
_MOST = 1.1 * _RECORDS * ROW.itemsize


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    """Memory of Python and numpy is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_records_in_flight_take_their_rows_and_no_more():
    rows = Rows()
    for first in range(0, _RECORDS, 50_000):
        rows.append(range(first, first + 50_000), at=1, state=LOCKED, count=1)
    assert tracemalloc.get_traced_memory()[0] < _MOST


def test_records_that_a_checkpoint_tells_of_take_their_rows_and_no_more():
    rows = Rows()
    rows.put(new_rows(np.arange(_RECORDS)))
    assert tracemalloc.get_traced_memory()[0] < _MOST


def test_a_checkpoint_is_read_with_one_copy_of_its_rows():
    before, after = Queues(), Queues()
    sizes = {"none": 0, "few": 3, "many": 2 * _RECORDS, "one": 1}
    for number, (name, size) in enumerate(sizes.items()):
        queue = Queue(bytes([number]) * 16, name, QueueSettings())
        rows = new_rows(np.arange(size))
        rows["at"] = rows["offset"] * 7
        queue.source((queue.id, 0)).rows.put(rows)
        before.add(queue)
    del rows
    stored = queues_snapshot(before), rows_snapshot(before)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    restore_queues(after, *stored)
    assert tracemalloc.get_traced_memory()[1] - held < 3 * _MOST  # rows twice would be four
    for queue, again in zip(before, after, strict=True):
        key = (queue.id, 0)
        assert np.array_equal(again.sources[key].rows.all(), queue.sources[key].rows.all())
