"""What unfinished records of a queue take in memory.

Finds: blocks that keep the array alive which their rows were copied from, so that each row is held
twice.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.rows import LOCKED, ROW, new_rows

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
