"""How far a streaming query is behind: rows at once, bytes and seconds on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kmq_spark.datasource.groups.progress import Lags, SourceProgress, lags_of, source_of_progress
from kmq_spark.datasource.offsets import StreamOffset
from kmq_spark.datasource.opening import open_log
from kmq_storage.errors import InvalidRequestError, KmqError
from kmq_storage.log.moving import looking_again
from kmq_storage.log.state.store_state import StoreState

_Seen = TypeVar("_Seen")


class Query(Protocol):
    """A streaming query, of Spark or of Spark Connect."""

    @property
    def lastProgress(self) -> Any:
        """The query's last progress; None before its first batch."""


def lag(query: Query, *, storage_options: Mapping[str, Any] | None = None) -> Lags:
    """Return how many records a streaming query has not finished: `{topic: {partition: n}}`.

    It counts up to the present end of the log where this process can open the store, else up to the
    end that the query's last progress knew. Records that were trimmed count for a query that has
    option `archive` only, since no other can read them. {} before the first batch of a run, and
    until the second one if the first was a replay. When several sources read a topic, the one that
    is furthest behind counts. `storage_options` as for `kmq.open`.
    """
    progress = getattr(query, "lastProgress", query)
    if progress is query:
        raise InvalidRequestError(f"query must be a streaming query, not {query!r}", option="query")
    merged: Lags = {}
    for source in sources_of(progress, storage_options):
        for topic, by_partition in _lag_of(source).items():
            known = merged.setdefault(topic, {})
            for partition, records in by_partition.items():
                known[partition] = max(known.get(partition, 0), records)
    return merged


def sources_of(
    progress: Any, storage_options: Mapping[str, Any] | None = None
) -> list[SourceProgress]:
    """Return the kmq sources in the progress of a query."""
    sources: Iterable[Any] = () if progress is None else progress.sources
    found = (
        source_of_progress(each.endOffset, each.latestOffset, storage_options) for each in sources
    )
    return [each for each in found if each is not None]


def _lag_of(source: SourceProgress) -> Lags:
    found = looked_at(source, lambda state: _unfinished(state, source))
    if found is None and source.latest is not None:
        return lags_of(source.finished, source.latest)
    return found or {}


def _unfinished(state: StoreState, source: SourceProgress) -> Lags:
    """The records that a source has not finished and can still read, up to the end of the log."""
    lags = lags_of(source.finished, ends_of(state, source.covered))
    if source.archived:
        return lags
    found: Lags = {}
    for name, by_partition in lags.items():
        parts = state.topic(name).parts
        found[name] = {n: parts[n].lag(parts[n].end - count) for n, count in by_partition.items()}
    return found


def looked_at(source: SourceProgress, look: Callable[[StoreState], _Seen]) -> _Seen | None:
    """Return what `look` sees in the source's present store, if it can be opened from here."""
    if source.url is None:
        return None
    try:
        return looking_again(open_log(source.url, read_only=True), look)
    except (KmqError, OSError):
        return None


def ends_of(state: StoreState, covered: StreamOffset) -> StreamOffset:
    """Return where the partitions of an offset end now; deleted topics have no end.

    Nor have partitions that a backup lacks which was put in the store's place.
    """
    topics = {name: state.topic_by_id(i.bytes) for name, i in (covered.ids or {}).items()}
    live = {name: topic for name, topic in topics.items() if topic is not None}
    return StreamOffset(
        positions={
            name: {p: topic.parts[p].end for p in covered.positions[name] if p < topic.partitions}
            for name, topic in live.items()
        },
        ids={name: topic.topic_id for name, topic in live.items()},
    )


@dataclass(frozen=True)
class Behind:
    """What a query has not finished, over all partitions."""

    records: int
    #: Of those in the log.
    bytes: int
    #: The age of the oldest of those in the log; an estimate inside of a stored batch.
    seconds: float


def behind(state: StoreState, source: SourceProgress, now_us: int) -> Behind:
    """What a source has not finished up to the end of the log, with its bytes and its age."""
    records = size = 0
    oldest = now_us
    for name, by_partition in _unfinished(state, source).items():
        topic = state.topic(name)
        for number, count in by_partition.items():
            part = topic.parts[number]
            records += count
            position = part.readable_from(part.end - count)
            if position >= part.end:
                continue
            index = topic.index(number)
            size += index.size_from(position, part.end)
            oldest = min(oldest, index.timestamp_of(position) or now_us)
    return Behind(records, size, max(now_us - oldest, 0) / 1e6)
