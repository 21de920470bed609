"""Records that are sorted into a run have the offset that they had.

Finds: offsets that are counted on over a hole, or over those that a batch tells itself.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance.runs import sorted_records
from tests.support.keyed import TOPIC

_KINDS = {"timestamp": pa.timestamp("us", "UTC"), "key": pa.binary(), "value": pa.binary()}
_SCHEMA = pa.schema({"offset": pa.int64(), **_KINDS})
_BATCH = pa.RecordBatch.from_pydict(
    {"timestamp": [1, 2, 3], "key": [b"b", b"a", b"b"], "value": [b"x", b"y", b"z"]},
    pa.schema(_KINDS),
)


def _slice(*offsets: int, told: bool = False) -> Slice:
    """Records of the queues b, a and b with these offsets."""
    batch = _BATCH.add_column(0, "offset", pa.array(offsets)) if told else _BATCH
    return Slice(TOPIC, 0, offsets[0], batch, offsets[-1] + 1)


@pytest.mark.parametrize(
    "slices",
    [
        [_slice(0, 1, 2)],
        [_slice(5, 6, 7), _slice(8, 9, 10)],
        [_slice(5, 6, 7), _slice(9, 10, 11)],
        [_slice(5, 6, 7), _slice(8, 10, 12, told=True)],
        [_slice(5, 6, 8, told=True), _slice(2**40, 2**40 + 1, 2**40 + 2)],
    ],
    ids=["from 0", "from 5", "a hole", "told", "far"],
)
def test_sorted_records_keep_their_offsets(slices: list[Slice]):
    pieces = [piece.records for piece in sorted_records(slices, _SCHEMA, 4)]
    found = pa.Table.from_batches(pieces)
    offsets = [offset for part in slices for offset in part.offsets().tolist()]
    a, b = offsets[1::3], [offset for row, offset in enumerate(offsets) if row % 3 != 1]
    assert found["key"].to_pylist() == [b"a"] * len(a) + [b"b"] * len(b)
    assert found["offset"].to_pylist() == a + b
