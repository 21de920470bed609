"""The columns of an archive: first those that say where a record stood, so that Delta keeps
statistics of them however many a topic has of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kmq_spark.lake.record import DELTA, ArchiveRecord
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.state import StoreState

_METADATA = ("topic", "topicId", "partition", "offset", "timestamp")
_RECORD = ("key", "value", "headers", "properties")


#: What no column of a Delta table may have in its name, unless another name stands in the files.
_NOT_IN_DELTA = " ,;{}()\n\t="


def check_columns(names: Sequence[str], file_format: str) -> None:
    """InvalidRequestError when the format has no columns of such names."""
    wrong = [name for name in names if set(name) & set(_NOT_IN_DELTA)]
    if file_format == DELTA and wrong:
        raise InvalidRequestError(
            f"column {wrong[0]!r}: Delta has no columns with any of {_NOT_IN_DELTA!r} in their "
            "names; archive into Parquet (file_format='parquet'), or rename the column",
            column=wrong[0],
        )


def columns_of(state: StoreState, record: ArchiveRecord) -> list[str]:
    """What the job reads of each record; the day it belongs to comes in addition."""
    metadata = [record.column(name) for name in _METADATA]
    if not record.typed:
        return [*metadata, *_RECORD]
    schema = state.topic(record.topics[0]).settings.schema
    assert schema is not None, "a typed topic has a schema"
    return [*metadata, *schema.names, *(f"_{name}" for name in _RECORD if name != "value")]
