"""The timestamps of records that are stored already, by their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter

from kmq_spark.errors import KmqError
from kmq_storage.format.records import timestamps_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.topic_state import Topic

_COLUMNS = frozenset({"timestamp", "_timestamp"})
#: Records that are no further apart are read at once.
_NEAR = 1_000
_ROWS = 65_536


def stored_times(
    log: CommitLog, topic_id: bytes, places: Iterable[tuple[int, int]]
) -> Mapping[tuple[int, int], int]:
    """The timestamps (UTC us) of the records at these places, as far as they can be read."""
    found: dict[tuple[int, int], int] = {}
    with suppress(KmqError):  # closed, or out of reach
        if (topic := log.refresh().topic_by_id(topic_id)) is None:
            return found
        for partition, group in groupby(sorted(set(places)), itemgetter(0)):
            for near in _neighbours([offset for _, offset in group]):
                with suppress(KmqError):  # trimmed or damaged: their timestamps are unknown
                    found.update(_read(log, topic, partition, near))
    return found


def _neighbours(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Offsets in order, cut where two are too far apart to be read at once."""
    first = 0
    for number, offset in enumerate(offsets):
        if number and offset - offsets[number - 1] > _NEAR:
            yield offsets[first:number]
            first = number
    yield offsets[first:]


def _read(
    log: CommitLog, topic: Topic, partition: int, offsets: Sequence[int]
) -> Iterator[tuple[tuple[int, int], int]]:
    first = max(offsets[0], topic.partition(partition).first)  # others were trimmed
    wanted, span = set(offsets), (first, offsets[-1] + 1)
    reader, layout = ChunkReader(log.files), topic.layout(_COLUMNS)
    for part in scan(log, reader, topic, partition, span, batch_rows=_ROWS, layout=layout):
        times = timestamps_of(part.batch).to_pylist()
        for offset, time in zip(part.offsets().tolist(), times, strict=True):
            if offset in wanted:
                yield (partition, offset), time
