"""Reading records where their commit has them, though they may stand elsewhere by now."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.layout import Layout
from kmq_storage.log.index.manifest_rows import row_of_records
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Chunk, Commit


def as_sent(
    reader: ChunkReader, layout: Layout, sent: RecordsEntry, commit: Commit
) -> pa.RecordBatch:
    """The columns of a batch of a commit that is in the log: looking up its new place costs more.

    Its topic may be deleted by now.

    A KmqError when it was staged, and is collected.
    """
    place = row_of_records(sent, 0, *commit.place).place((sent.topic_id, sent.partition))
    assert isinstance(place, Chunk), "no commit has segments for records that are sent"
    return reader.stored(place, layout)
