"""Dropping finished records of a queue's own log that stand behind an unfinished one.

A trim gives up what is before the first unfinished record, which may be delayed for years. So a
segment of which nearly all is finished is rewritten without that, as compaction does. What is
finished stays finished, whatever is committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kmq_storage.format.manifest import SEGMENT, Row
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.source import Source
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.compact import surviving
from kmq_storage.maintenance.manner import Manner
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.reports import CompactReport, all_compacted, replacing
from kmq_storage.maintenance.segments import Compacted, Replacer
from kmq_storage.maintenance.survivors import Survivors

#: At most one of this many records stays in what is rewritten: where receivers just are, segments
#: are partly finished, and will be trimmed.
_SHARE = 8


def drop_finished(
    log: CommitLog, state: StoreState, topics: Iterable[Topic], *, manner: Manner
) -> CompactReport:
    """Rewrite segments in which little is unfinished, where topics are queues' own logs."""
    lsn = state.lsn  # read before planning: commits that are applied meanwhile then conflict
    reader, replacer = ChunkReader(log.files), Replacer(log, manner.rest)
    reports: list[CompactReport] = []
    for topic, source in _own_logs(state, topics):
        with manner.apart():
            for row in _mostly_finished(source, topic):
                one = Replacement(topic, 0, (row,), lsn)
                survivors = Survivors(*one.span)
                survivors.add(source.unfinished_in(*one.span))
                kept = surviving(one, reader, survivors)
                reports.append(replacing(1, replacer.replace(one, kept, Compacted(0))))
    return all_compacted(reports)


def may_drop_finished(state: StoreState, topics: Iterable[Topic]) -> bool:
    """Whether there are such segments."""
    return any(_mostly_finished(source, topic) for topic, source in _own_logs(state, topics))


def _own_logs(state: StoreState, topics: Iterable[Topic]) -> Iterator[tuple[Topic, Source]]:
    """Those of some topics that are queues' own logs, and what their queues know of them."""
    for topic in topics:
        queue = state.queues.by_id(topic.id)
        source = None if queue is None else queue.sources.get(queue.log_key)
        if source is not None:
            yield topic, source


def _mostly_finished(source: Source, topic: Topic) -> list[Row]:
    """The segments behind the first unfinished record of which little stays."""
    first = source.rows.lowest()
    if first is None or first >= source.next:
        return []
    rows = topic.index(0).rows(first, min(source.next, topic.partition(0).end))
    return [
        row
        for row in rows
        if row.kind == SEGMENT
        and row.end_offset <= source.next  # so that what is unfinished has its row in the source
        and _SHARE * len(source.unfinished_in(row.base_offset, row.end_offset)) <= row.rows > 0
    ]
