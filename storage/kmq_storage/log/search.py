"""Looking for records of a partition: a look at the columns that tell, and the rest of the hits.

What can be left out is left out: batches outside the offsets, batches of the commit log that have
no such column at all, and of sealed batches every column but those that tell, unless one of
their records is wanted. A partition is never left out for its number: which one a key goes to is
the writer's choice, and may have been another one before partitions were added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from kmq_storage import limits
from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.matching import WantedRecords
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice, scan
from kmq_storage.log.topic_state import Topic

#: Smaller batches (bytes) are read together, whether all of them have a hit or not.
_LARGE = 64 * 1024


class Searcher:
    """Looks through one topic; holds one batch at a time. One thread at a time."""

    def __init__(self, log: CommitLog, topic: Topic, wanted: WantedRecords) -> None:
        self._log = log
        self._topic = topic
        self._wanted = wanted
        self._layout = topic.layout()
        self._telling = topic.layout(wanted.columns(typed=self._layout.schema is not None))
        #: One looks, the other fetches hits meanwhile.
        self._looking, self._fetching = ChunkReader(log.files), ChunkReader(log.files)

    def search(self, partition: int, span: tuple[int, int], limit: int | None) -> Iterator[Slice]:
        """The wanted records with offsets in [start, end), at most `limit`; errors as of `scan`."""
        if self._wanted == WantedRecords():
            yield from _first(self._scan(partition, span), limit)
            return
        for offsets in self._places(partition, span):
            chosen = offsets[:limit]
            yield from self._fetched(partition, chosen)
            limit = None if limit is None else limit - len(chosen)
            if limit == 0:
                return

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
        """The offsets of wanted records, those of one batch at a time."""
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
        """The records at these offsets, as far as compaction did not drop them meanwhile."""
        for some in np.split(offsets, offsets.searchsorted(self._borders(partition, offsets))):
            if not len(some):
                continue
            for part in self._scan(partition, (int(some[0]), int(some[-1]) + 1)):
                rows = np.flatnonzero(np.isin(part.offsets(), some))
                if len(rows):
                    yield part.taken(rows)  # a copy: what it was read from can be given back

    def _borders(self, partition: int, offsets: Numbers) -> list[int]:
        """Where large batches around these offsets begin and end: one without a hit is not read."""
        with suppress(CorruptionError):  # what moved meanwhile is read with its neighbours
            places = self._topic.places(partition, int(offsets[0]), int(offsets[-1]) + 1)
            name, looking = self._topic.name, self._looking
            chunks = (chunk for place in places for chunk in looking.chunks(place, name, partition))
            large = (chunk for chunk in chunks if chunk.location.length > _LARGE)
            return [at for chunk in large for at in (chunk.base_offset, chunk.end_offset)]
        return []


def _first(parts: Iterator[Slice], limit: int | None) -> Iterator[Slice]:
    """Slices with records, up to so many of them."""
    for part in parts:
        if limit is not None and part.rows >= limit:
            yield part.cut(limit)[0]
            return
        if part.rows:
            yield part
            limit = None if limit is None else limit - part.rows
