"""What a repair cut out of the topics of a queue: told once, and gone on behind.

Nobody seeks in a queue. So who meets a recorded gap finishes it for all receivers, whole, and is
told by a DataLossError; the next call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from kmq_storage.deliveries import answer
from kmq_storage.errors import ConflictError, DataLossError, LeaseExpiredError
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import ACK, RECALL, Run
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.offset_index import Gap
from kmq_storage.log.queue_state import Queue
from kmq_storage.names import queue_of_log

_LOGGER = logging.getLogger(__name__)


def gaps_of(log: CommitLog, key: Key, start: int, end: int) -> list[Gap]:
    """The recorded gaps of a partition that [start, end) meets; none of a topic that is gone."""
    topic = log.state.topic_by_id(key[0])
    return [] if topic is None else topic.index(key[1]).gaps_between(start, end)


def finish_missing(log: CommitLog, queue: Queue, missing: Sequence[Run]) -> DataLossError | None:
    """Finish records that somebody holds and that are not there, and the gaps they stood in, whole.

    The error to raise where there is a gap; None where compaction dropped them.
    """
    with suppress(LeaseExpiredError):  # whoever gets them next finishes them
        log.commit([Unit((answer(log, queue, ACK, missing),))])
    log.refresh()
    gaps = _gaps_met(log, missing)
    for key, gap in gaps:
        _finish_unseen(log, queue, key, gap)
    return loss_of(log, queue, gaps) if gaps else None


def loss_met(log: CommitLog, queue: Queue, missing: Sequence[Run]) -> DataLossError | None:
    """The error that tells of all gaps that records which are not there stood in; None if none."""
    gaps = _gaps_met(log, missing)
    return loss_of(log, queue, gaps) if gaps else None


def _gaps_met(log: CommitLog, runs: Sequence[Run]) -> list[tuple[Key, Gap]]:
    found: dict[tuple[Key, int], Gap] = {}
    for run in runs:
        for gap in gaps_of(log, run[:2], run.first, run.first + run.rows):
            found[run[:2], gap.start] = gap
    return [(key, gap) for (key, _), gap in found.items()]


def _finish_unseen(log: CommitLog, queue: Queue, key: Key, gap: Gap) -> None:
    """Have the records of a gap that nobody had yet handed out to nobody."""
    first = max(queue.looked_up_to(key), gap.start)
    if first < gap.end:
        rest = Run(*key, first, gap.end - first, queue.unnumbered(key[0]))
        with suppress(ConflictError):  # somebody has some of them, and will be told
            log.commit([Unit((answer(log, queue, RECALL, [rest]),))])


def loss_of(log: CommitLog, queue: Queue, gaps: Sequence[tuple[Key, Gap]]) -> DataLossError:
    """The error that tells a receiver of gaps; a warning says so, too, should it be overlooked.

    Its context has the first one.
    """
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
