"""Deletions in a compacted topic that its source has forgotten before they were copied.

Compaction drops an old tombstone together with the records that it deleted. A copy may still have
some of these records, which must be dropped there, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.format.records import keys_of, tombstones_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import planning
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.compact import keep_only
from kmq_storage.maintenance.newest import keyed, newest_offsets
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.survivors import Survivors, newest_of_each_key


def drop_deleted(
    source: CommitLog, target: CommitLog, topic: Topic, number: int, copied: int
) -> None:
    """Compact the copied records, and drop keys that the source has deleted since.

    This is done before more is copied, and only if the source dropped records behind the copy,
    which may have been tombstones. Records before a range that the source lost are kept, as it is
    unknown what the lost records deleted.
    """
    part, index = topic.partition(number), topic.index(number)
    lost = [gap.end for gap in index.gaps] + [hole.end for hole in index.holes]
    since = max([part.start, *lost])
    if topic.settings.cleanup != "compact" or since >= copied:
        return
    if all(row.dense for row in index.rows(copied, part.end)):
        return
    reader = ChunkReader(source.files)
    theirs = Replacement(topic, number, tuple(index.rows(since, part.end)), 0, first=since)

    def is_done(state: StoreState) -> bool:
        lsn, mine = state.lsn, state.topic(topic.name)
        rows = tuple(mine.index(number).rows(mine.partition(number).start, copied))
        if not rows or rows[-1].end_offset > copied:  # another copy was faster
            return True
        return _Copied(target, Replacement(mine, number, rows, lsn)).drop_unlike(theirs, reader)

    while not planning(target, is_done):
        pass  # maintenance was faster


@dataclass(frozen=True, slots=True)
class _Copied:
    """The copied records of a partition."""

    target: CommitLog
    whole: Replacement

    def drop_unlike(self, theirs: Replacement, source: ChunkReader) -> bool:
        """Drop keys that the source no longer has; False when the partition changed meanwhile."""
        whole, reader = self.whole, ChunkReader(self.target.files)
        deleted = self._deleted(reader, theirs, source)
        if not len(deleted):
            return True
        slices = ((part, False) for part in whole.slices(reader))
        survivors = newest_of_each_key(slices, whole.span, rows=_rows_of(whole))
        survivors.bury(deleted)
        return keep_only(self.target, whole, survivors)

    def _deleted(self, reader: ChunkReader, theirs: Replacement, source: ChunkReader) -> Numbers:
        """The newest offsets of keys that the source no longer has, except tombstones."""
        tombstones = Survivors(*self.whole.span)

        def of_target() -> Iterator[pa.RecordBatch]:
            for part in self.whole.slices(reader):
                offsets = part.offsets()
                tombstones.add(offsets[tombstones_of(part.batch)])
                yield keyed(keys_of(part.batch), 2 * offsets)

        of_source = (
            keyed(keys_of(part.batch), 2 * part.offsets() + 1) for part in theirs.slices(source)
        )
        rows = _rows_of(self.whole) + _rows_of(theirs)
        marks = np.concatenate(list(newest_offsets(chain(of_target(), of_source), rows=rows)))
        # Odd marks are the source's: for these keys, it has the same record or a newer one.
        newest: Numbers = marks[marks % 2 == 0] // 2
        newest = newest[newest >= theirs.first]
        return newest[~tombstones.of(newest)]


def _rows_of(replaced: Replacement) -> int:
    return sum(row.rows for row in replaced.rows)
