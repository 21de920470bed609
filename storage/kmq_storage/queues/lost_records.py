"""Gaps of a repair in the topics of a queue: reported once, and then passed.

A receiver can't seek in a queue. So the receiver that meets a gap finishes all its records for all
receivers, and gets a DataLossError. The next call goes on behind the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from kmq_storage.errors import ConflictError, DataLossError, KmqError, LeaseExpiredError
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import RECALL, RELEASE, LookEntry, Run
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.names import queue_of_log
from kmq_storage.queues.handing import answer

#: What the commit log says of records that are finished, as nobody can get them any more.
NOT_THERE = "compacted or lost before it was received"
#: How many offsets are searched for the next record behind dropped ones.
_LOOKED_AT = 100_000
#: The most runs of records that one commit finishes.
_RUNS = 10_000
_LOGGER = logging.getLogger(__name__)


def gaps_of(log: CommitLog, key: Key, start: int, end: int) -> list[Gap]:
    """The gaps of a partition that overlap [start, end); empty for a deleted topic."""
    topic = log.state.topic_by_id(key[0])
    return [] if topic is None else topic.index(key[1]).gaps_between(start, end)


def finish_missing(
    log: CommitLog, reader: ChunkReader, queue: Queue, missing: Sequence[Run]
) -> DataLossError | None:
    """Finish delivered records that do not exist any more, together with the gaps around them.

    Returns the error to raise if there is a gap. Otherwise compaction dropped the records, and the
    result is None. Dropped records behind them are then finished, too, so that they are not
    delivered one by one only to be found missing.
    """
    with suppress(LeaseExpiredError):  # the next receiver will finish them
        # Else they would count as delivered and acknowledged.
        log.commit([Unit((answer(log, queue, RELEASE, missing),))], durable=False)
        log.refresh()
        _finish_all_free(log, queue, missing)
    log.refresh()
    gaps = _gaps_met(log, missing)
    for key, gap in gaps:
        finish_free(log, queue, key, gap)
    for key, end in {} if gaps else {run.key: run.end for run in missing}.items():
        if not queue.looks(key):  # looking at records finds only existing ones
            _finish_unseen(log, queue, key, end, _next_there(log, reader, key, end))
    return loss_of(log, queue, gaps) if gaps else None


def _next_there(log: CommitLog, reader: ChunkReader, key: Key, start: int) -> int:
    """The offset of the first existing record from `start` on; `start` if none is found."""
    topic = log.state.topic_by_id(key[0])
    if topic is None:
        return start
    end, found = min(topic.partition(key[1]).end, start + _LOOKED_AT), start
    with suppress(KmqError):  # damaged or moved: the receiver of the record gets the error
        spans = [each for each in topic.index(key[1]).outside_gaps(start, end) if each[0] == start]
        for part in scan(log, reader, topic, key[1], spans[0], batch_rows=1) if spans else ():
            found = int(part.offsets()[0]) if part.rows else part.end
            if part.rows:
                break
    return found


def loss_met(log: CommitLog, queue: Queue, missing: Sequence[Run]) -> DataLossError | None:
    """The error for all gaps that missing records are in; None if there are none."""
    gaps = _gaps_met(log, missing)
    return loss_of(log, queue, gaps) if gaps else None


def _gaps_met(log: CommitLog, runs: Sequence[Run]) -> list[tuple[Key, Gap]]:
    found: dict[tuple[Key, int], Gap] = {}
    for run in runs:
        for gap in gaps_of(log, run.key, run.first, run.end):
            found[run.key, gap.start] = gap
    return [(key, gap) for (key, _), gap in found.items()]


def _finish_unseen(log: CommitLog, queue: Queue, key: Key, start: int, end: int) -> None:
    """Finish the records of a range that were not delivered yet."""
    first = max(queue.looked_up_to(key), start)
    if first < end:
        rest = Run(*key, first, end - first, queue.unnumbered(key[0]))
        with suppress(ConflictError):  # receivers have some of them, and will get the error
            log.commit([Unit((answer(log, queue, RECALL, [rest], reason=NOT_THERE),))])


def finish_free(log: CommitLog, queue: Queue, key: Key, gap: Gap) -> None:
    """Finish the unlocked records of a gap, whether or not they were delivered before.

    The receivers of locked ones will get the error themselves.
    """
    queue = log.state.queues.by_id(queue.id) or queue
    _finish_all_free(log, queue, [Run(*key, gap.start, gap.end - gap.start, 0)])
    seen = queue.looked_up_to(key)
    if queue.settings.order == "key" and gap.start <= seen < gap.end:
        unbound = queue.unbound.get(key[0], 0)
        with suppress(ConflictError):  # another receiver looked
            log.commit([Unit((LookEntry(queue.id, *key, seen, gap.end, (), (), unbound),))])
    log.refresh()


def _finish_all_free(log: CommitLog, queue: Queue, ranges: Sequence[Run]) -> None:
    """Finish the unlocked records of some ranges."""
    queue, now = log.state.queues.by_id(queue.id) or queue, log.now_us()
    runs = [free for each in ranges for free in queue.free_in(each.key, each.first, each.end, now)]
    for first in range(0, len(runs), _RUNS):
        some = runs[first : first + _RUNS]
        with suppress(ConflictError):  # a receiver got some of them meanwhile
            log.commit([Unit((answer(log, queue, RECALL, some, reason=NOT_THERE),))])


def loss_of(log: CommitLog, queue: Queue, gaps: Sequence[tuple[Key, Gap]]) -> DataLossError:
    """The error for gaps, with the first gap in its context; it is also logged as a warning."""
    told = [
        f"{_name(log, key)}-{key[1]}: offsets {gap.start} to {gap.end - 1} were lost ({gap.reason})"
        for key, gap in gaps
    ]
    key, gap = gaps[0]
    error = DataLossError(
        f"{'; '.join(told)}; queue {queue.name} goes on behind them, with the next call",
        queue=queue.name,
        topic=_name(log, key),
        partition=key[1],
        start=gap.start,
        end=gap.end,
    )
    _LOGGER.warning("%s", error)
    return error


def _name(log: CommitLog, key: Key) -> str:
    topic = log.state.topic_by_id(key[0])
    return key[0].hex() if topic is None else queue_of_log(topic.name) or topic.name
