"""Offsets inside a segment that have no record: lost, or removed by compaction.

Batches still cover the offsets that compaction removes. A repair cuts out whole batches, so its
offsets lie between batches. But earlier versions joined the batches around such a cut, so a lost
offset may also lie inside a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Numbers
from kmq_storage.format.manifest import Row
from kmq_storage.format.records import SEALED, is_typed, keys_of, offsets_of
from kmq_storage.format.segment import decode_footer

#: A segment with more holes counts as compacted, whatever keys its records have now.
_HOLES_MAX = 1_000


def lost_inside(contents: pa.Buffer, row: Row, *, is_queues: bool = False) -> list[tuple[int, int]]:
    """The ranges of offsets inside a segment that were lost.

    Offsets inside batches don't count as lost if compaction may have removed them, or maintenance
    as finished ones, if it is a segment of a queue's own log. ArrowException when it can't be read.
    """
    footer = contents.slice(row.position)
    chunks = decode_footer(footer, "", row.file, columns=SEALED, expected=None).chunks
    spans = np.array([(chunk.base_offset, chunk.end_offset) for chunk in chunks], np.int64)
    between = _between(spans[:, 0], spans[:, 1], row)
    if is_queues or (spans[:, 1] - spans[:, 0]).sum() == row.rows:
        return between
    batches = _keys_and_offsets(contents)
    offsets = pa.chunked_array(map(offsets_of, batches)).to_numpy()
    holes = _between(offsets, offsets + 1, row)
    return between if _may_be_compacted(batches) or len(holes) > _HOLES_MAX else holes


def _keys_and_offsets(contents: pa.Buffer) -> list[pa.RecordBatch]:
    """The batches of a segment, with only the columns of keys and offsets."""
    schema = pa.ipc.open_file(contents).schema
    wanted = ("_key", "_offset") if is_typed(schema) else ("key", "offset")
    fields = [number for number, name in enumerate(schema.names) if name in wanted]
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    reader = pa.ipc.open_file(contents, options=options)
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _may_be_compacted(batches: Sequence[pa.RecordBatch]) -> bool:
    """Whether some records have keys, and no key comes twice."""
    keys = [each.drop_null() for each in map(keys_of, batches) if each is not None]
    count = sum(map(len, keys))
    return count > 0 and pc.count_distinct(pa.chunked_array(keys)).as_py() == count


def _between(begins: Numbers, ends: Numbers, row: Row) -> list[tuple[int, int]]:
    """The ranges of a row's offsets that none of these spans covers."""
    before = np.concatenate([[row.base_offset], ends])
    behind = np.concatenate([begins, [row.end_offset]])
    apart = np.flatnonzero(before < behind)
    return list(zip(before[apart].tolist(), behind[apart].tolist(), strict=True))
