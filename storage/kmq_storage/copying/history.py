"""Checking that a source still has the records that were copied, before more are copied.

A source that was restored from an older state, or another branch of it, may have other records at
the copied offsets, although it is the same topic.
"""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.errors import InvalidRequestError, KmqError, UnavailableError
from kmq_storage.format.records import without_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.topic_state import Topic

#: No limit, for the rendering of a record.
_ALL = 2**31 - 1


def check_history(
    source: CommitLog, target: CommitLog, topic: Topic, partition: int, copied: int
) -> None:
    """InvalidRequestError when the source has another record at the last copied offset.

    If one of both records was trimmed, compacted or lost, this can't be known, and there is no
    error. Runs are checked only if there is more to copy, as whole runs have to be read.
    UnavailableError when a record can't be read just now.
    """
    if not copied:
        return
    end = topic.partition(partition).end
    place = f"{topic.name}-{partition}"
    if end < copied:
        raise _is_another(place, f"ends at offset {end}, and {copied} were copied", source, target)
    theirs = target.state.topic(topic.name)
    last = (copied - 1, copied)
    if end == copied and any(row.in_run for row in theirs.index(partition).rows(*last)):
        return
    mine, other = (
        _record(log, of, partition, copied - 1) for log, of in ((source, topic), (target, theirs))
    )
    if mine is not None and other is not None and mine != other:
        what = f"has another record at offset {copied - 1} than the one that was copied"
        raise _is_another(place, what, source, target)


def _is_another(place: str, what: str, source: CommitLog, target: CommitLog) -> InvalidRequestError:
    return InvalidRequestError(
        f"{place} in {source.files.url} {what} to {target.files.url}: the source was restored, or "
        "is another branch; copy into another store"
    )


def _record(log: CommitLog, topic: Topic, partition: int, offset: int) -> dict[str, str] | None:
    """A record as text by column; None when there is none or it is lost."""
    span = (offset, offset + 1)
    try:
        for part in scan(log, ChunkReader(log.files), topic, partition, span, batch_rows=1):
            return _as_text(without_offsets(part.batch)) if part.rows else None
    except UnavailableError:
        raise  # the record may still exist
    except KmqError:
        pass  # trimmed, lost or damaged
    return None


def _as_text(batch: pa.RecordBatch) -> dict[str, str]:
    """The values as Arrow writes them, so that two NaNs are equal."""
    return {
        name: column.to_string(container_window=_ALL, element_size_limit=_ALL)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count < len(column)
    }
