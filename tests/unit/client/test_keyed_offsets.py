"""Where reading begins: keyed queues take the same indexes for one queue and for many.

Finds: an index that is taken for one queue and refused for many, or the other way round; one that
becomes another number on its way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import InvalidRequestError


@pytest.mark.parametrize("index", [2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**80])
def test_huge_indexes_are_asked_for_alone_and_together_with_others(queues: KeyedQueues, index: int):
    queues.put_batch(["a", "b"], [b"0", b"1"])
    assert queues.get("a", index, 9) == queues.get_arrow("a", index, 9)["value"].to_pylist() == []
    assert queues.get_many(["a", "b"], index, 2**80).num_rows == 0
    for offsets in ([index, 0], (index, 0), np.array([index, 0], object)):
        assert queues.get_many(["a", "b"], offsets, 9)["value"].to_pylist() == [b"1"]


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 0],
        [np.int64(1), np.uint8(0)],
        np.array([1, 0], np.uint64),
        np.array([1, 0], np.int8),
        pa.array([1, 0]),
        range(1, -1, -1),
    ],
    ids=["ints", "numpy's", "uint64", "int8", "an Arrow array", "a range"],
)
def test_offsets_for_many_queues_are_any_whole_numbers(queues: KeyedQueues, offsets: Any):
    queues.put_batch(["a", "a", "b"], [b"0", b"1", b"2"])
    assert queues.get_many(["a", "b"], offsets, 9)["value"].to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize(("offset", "num"), [(-1, 1), (0, -1), (0.0, 1), (0, "1"), (True, 1)])
def test_negative_numbers_and_others_are_refused(queues: KeyedQueues, offset: Any, num: Any):
    for get in (queues.get, queues.get_arrow):
        with pytest.raises(InvalidRequestError, match="whole number from 0"):
            get("a", offset, num)


@pytest.mark.parametrize(
    "offsets",
    [
        *([0], [0, -1], [0, 1.5], -1, -(2**80), "ab", b"ab", ["0", "1"], [None, 1], [[1, 2]]),
        *([[1], [1, 2]], [2**80, -1], {0, 1}, 1.0, np.array([0.0, 1.0])),
        *(True, [True, 0], [np.True_, 0], np.array([True, False]), np.array([True, 0], object)),
    ],
    ids=repr,
)
def test_offsets_for_many_queues_that_fit_not_are_refused(queues: KeyedQueues, offsets: Any):
    with pytest.raises(InvalidRequestError, match=r"^offsets "):
        queues.get_many(["a", "b"], offsets, 1)
