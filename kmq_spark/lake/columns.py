"""The columns of an archive: first those that say where a record stood, so that Delta keeps
statistics of them however many a topic has of its own.
"""

from __future__ import annotations

from kmq_spark.lake.record import ArchiveRecord
from kmq_storage.log.state import StoreState

_METADATA = ("topic", "topicId", "partition", "offset", "timestamp")
_RECORD = ("key", "value", "headers", "properties")


def columns_of(state: StoreState, record: ArchiveRecord) -> list[str]:
    """What the job reads of each record; the day it belongs to comes in addition."""
    metadata = [record.column(name) for name in _METADATA]
    if not record.typed:
        return [*metadata, *_RECORD]
    schema = state.topic(record.topics[0]).settings.schema
    assert schema is not None, "a typed topic has a schema"
    return [*metadata, *schema.names, *(f"_{name}" for name in _RECORD if name != "value")]
