"""Searching a partition for records: first only the columns of the condition, then the hits.

The search skips batches outside of the offsets and batches without a needed column. Of sealed
batches, it reads only the columns of the condition, and others only if a record is wanted. It never
skips a partition because of a key: the writer chooses a key's partition, and the choice may have
changed when partitions were added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import numpy as np

from kmq_storage import limits
from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.matching import WantedRecords
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.log.state.topic_state import Topic

#: Batches smaller than this (bytes) are read together, whether or not all of them have a hit.
_LARGE = 64 * 1024


class Searcher:
    """Searches one topic, with one batch in memory at a time; for one thread at a time."""

    def __init__(self, log: CommitLog, topic: Topic, wanted: WantedRecords) -> None:
        self._log = log
        self._topic = topic
        self._wanted = wanted
        self._layout = topic.layout()
        self._telling = topic.layout(wanted.columns(typed=self._layout.schema is not None))
        #: One reader for the condition's columns, and one to fetch hits meanwhile.
        self._looking, self._fetching = ChunkReader(log.files), ChunkReader(log.files)

    def search(self, partition: int, span: tuple[int, int], limit: int | None) -> Iterator[Slice]:
        """The wanted records with offsets in [start, end), at most `limit`; errors as in `scan`."""
        if self._wanted == WantedRecords():
            yield from _first(self._scan(partition, span), limit)
            return
        pieces = self._of_the_time(partition, span)
        for offsets in chain.from_iterable(self._places(partition, piece) for piece in pieces):
            chosen = offsets[:limit]
            yield from self._fetched(partition, chosen)
            limit = None if limit is None else limit - len(chosen)
            if limit == 0:
                return

    def _of_the_time(self, partition: int, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """A span without the rows of the manifest that have no record of the wanted time."""
        start, end = span
        rows = self._topic.index(partition).rows(start, end) if self._wanted.has_time else ()
        for row in rows:
            if not self._wanted.may_be_among(row.min_timestamp, row.max_timestamp):
                if start < row.base_offset:
                    yield start, row.base_offset
                start = max(start, row.end_offset)
        if start < end:
            yield start, end

    def _scan(self, partition: int, span: tuple[int, int]) -> Iterator[Slice]:
        return scan(
            self._log,
            self._fetching,
            self._topic,
            partition,
            span,
            batch_rows=limits.BATCH_ROWS_MAX,
            layout=self._layout,
        )

    def _places(self, partition: int, span: tuple[int, int]) -> Iterator[Numbers]:
        """The offsets of wanted records, batch by batch."""
        for part in scan(
            self._log,
            self._looking,
            self._topic,
            partition,
            span,
            batch_rows=limits.BATCH_ROWS_MAX,
            layout=self._telling,
            having=self._wanted.needed,
        ):
            rows = self._wanted.rows(part.batch)
            if len(rows):
                yield part.offsets()[rows]

    def _fetched(self, partition: int, offsets: Numbers) -> Iterator[Slice]:
        """The records at these offsets, unless compaction dropped them meanwhile."""
        for some in np.split(offsets, offsets.searchsorted(self._borders(partition, offsets))):
            if not len(some):
                continue
            for part in self._scan(partition, (int(some[0]), int(some[-1]) + 1)):
                rows = np.flatnonzero(np.isin(part.offsets(), some))
                if len(rows):
                    yield part.taken(rows)  # a copy, so that the batch itself can be freed

    def _borders(self, partition: int, offsets: Numbers) -> list[int]:
        """The borders of large batches around these offsets, to skip batches without a hit."""
        with suppress(CorruptionError):  # without borders, more is read than needed
            places = self._topic.places(partition, int(offsets[0]), int(offsets[-1]) + 1)
            name, looking = self._topic.name, self._looking
            chunks = (chunk for place in places for chunk in looking.chunks(place, name, partition))
            large = (chunk for chunk in chunks if chunk.location.length > _LARGE)
            return [at for chunk in large for at in (chunk.base_offset, chunk.end_offset)]
        return []


def _first(parts: Iterator[Slice], limit: int | None) -> Iterator[Slice]:
    """Non-empty slices, up to `limit` records in all."""
    for part in parts:
        if limit is not None and part.rows >= limit:
            yield part.cut(limit)[0]
            return
        if part.rows:
            yield part
            limit = None if limit is None else limit - part.rows
