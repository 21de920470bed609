"""Reading records where their commit has them, though they may stand elsewhere by now."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.format.entries import RecordsEntry
from kmq_storage.log.index.manifest_rows import row_of_records
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Commit


def as_sent(
    reader: ChunkReader, topic: Topic, sent: RecordsEntry, commit: Commit, columns: frozenset[str]
) -> pa.RecordBatch:
    """The columns of a batch of a commit that is in the log: looking up its new place costs more.

    A KmqError when it was staged, and is collected.
    """
    place = row_of_records(sent, 0, *commit.place).place((topic.id, sent.partition))
    assert isinstance(place, Chunk), "no commit has segments for records that are sent"
    return reader.stored(place, topic.layout(columns))
