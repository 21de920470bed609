"""Thinning: a large run of which more than half is dead is rewritten by itself.

Large runs are not merged any more, so dead messages in them would stay for ever. Thinning drops
nothing of a queue that has messages between the run and the queue's end. So if any messages of a
life remain, all earlier messages of this life remain, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage import limits
from kmq_storage.arrays import Mask
from kmq_storage.format.plain_columns import flags_of, number_column
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.manner import PLAIN, Manner, Rest
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.reports import CompactReport, all_compacted, replacing
from kmq_storage.maintenance.runs import RunMerge
from kmq_storage.maintenance.segments import Replacer

#: Runs smaller than this share of the largest can still be merged, which drops dead messages.
_SMALL_SHARE = 4


def thin(log: CommitLog, topic: Topic, lsn: int, *, manner: Manner = PLAIN) -> CompactReport:
    """Rewrite large runs of a keyed topic that are mostly dead.

    `lsn` is that of the state that the topic is from.
    """
    weight_min = limits.RUN_BYTES // _SMALL_SHARE
    reports: list[CompactReport] = []
    for number, part in enumerate(topic.parts):
        rows = topic.index(number).rows(part.start, part.end)
        runs = list(takewhile(lambda row: row.in_run, rows))
        large = [place for place, row in enumerate(runs) if row.weight >= weight_min]
        if large and large[0] + 1 < len(runs):
            whole = Replacement(topic, number, tuple(runs[large[0] :]), lsn)
            with manner.apart():
                reports += _thinned(log, whole, weight_min, manner.rest)
    return all_compacted(reports)


def _thinned(
    log: CommitLog, whole: Replacement, weight_min: int, rest: Rest
) -> Iterator[CompactReport]:
    """Thin the runs of one partition from its first large run on, the newest first."""
    replacer, reader = Replacer(log, rest), ChunkReader(log.files)
    later: list[_Later] = []
    for row in reversed(whole.rows):
        place, gone = row.place((whole.topic.id, whole.partition)), _NO_NAMES
        run = RunIndex(reader, place, whole.topic.name)
        one = replace(whole, rows=(row,))
        if row.weight >= weight_min and one.is_whole:
            ended, dead = _ended(run, later)
            if 2 * dead > row.rows:
                entry = replacer.replace(one, RunMerge([run], one.schema, ended=ended))
                yield replacing(1, entry)
                if entry is None:  # earlier runs rely on this replacement
                    return
                gone = ended
        later.insert(0, _Later(run, gone))


@dataclass(frozen=True, slots=True)
class _Later:
    """A later run, and the queues that thinning has removed from it."""

    run: RunIndex
    gone: pa.Array

    def goes_on(self, names: pa.Array) -> Mask:
        """A mask of the queues that have messages here, or that begin anew here."""
        messages = self.run.counts(names, self.run.place.end_offset) > 0
        messages &= ~flags_of(pc.is_in(names, value_set=self.gone))
        found: Mask = messages | (self.run.beginnings_of(names) >= 0)
        return found


def _ended(run: RunIndex, later: Sequence[_Later]) -> tuple[pa.Array, int]:
    """The queues of a run whose next messages belong to a new life, and their dead messages."""
    found, dead = [_NO_NAMES], 0
    for number, each in enumerate(later):
        for names in (beginnings.names for beginnings in each.run.beginnings()):
            counts = run.counts(names, run.place.end_offset)
            for between in later[:number]:
                counts[between.goes_on(names)] = 0
            found.append(names.filter(number_column(counts > 0)))
            dead += int(counts.sum())
    return pa.concat_arrays(found), dead


_NO_NAMES = pa.nulls(0, pa.binary())
