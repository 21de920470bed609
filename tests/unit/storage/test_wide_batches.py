"""Batches of thousands of columns.

Finds: work for each pair of columns.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pyarrow as pa

from kmq_storage.format import packing
from kmq_storage.format.pieces import message_pieces


def _steps_to_pack(columns: int) -> int:
    """The bytecodes that the module executes to pack a batch of so many columns."""
    names = [f"c{number}" for number in range(columns)]
    batch = pa.record_batch([pa.array([1])] * columns, names)
    pieces, steps = message_pieces(batch), 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != packing.__file__:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        packing.packed(pieces, batch.schema)
    finally:
        sys.settrace(before)
    return steps


def test_a_batch_of_twice_the_columns_is_packed_in_twice_the_steps():
    assert 1.9 < _steps_to_pack(1_000) / _steps_to_pack(500) < 2.1
