"""Looking at records before a queue delivers them: which ones a filter lets in, and their keys.

A receiver looks at as many records as it needs, and commits the result. The result depends only on
the records, so it does not matter which receiver looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import ConflictError, KmqError
from kmq_storage.format.manifest import Key
from kmq_storage.format.murmur2 import murmur2
from kmq_storage.format.plain_columns import flags_of, scalar
from kmq_storage.format.queue_entries import LookEntry
from kmq_storage.format.records import column_of, keys_of
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.queues.runs import runs_of
from kmq_storage.queues.filters import let_in
from kmq_storage.queues.lost_records import finish_free, gaps_of, loss_of

if TYPE_CHECKING:
    import numpy.typing as npt

#: The most records of one look.
_ROWS = 32_768
#: One look lets in no fewer records, however many partitions there are.
_FEW = 256
#: No receiver looks further while this many records wait for others with the same key: they take
#: some 150 bytes of memory each, and 13 ms of a receive together.
_AHEAD = 1_000_000
_COLUMNS = frozenset({"key", "_key", "properties", "_properties"})


def look_ahead(log: CommitLog, reader: ChunkReader, queue: Queue, most: int) -> None:
    """Look at records until `most` are deliverable, or too many wait, or there are no more.

    Partitions are looked at when it is their turn, so that a backlog of one keeps none waiting.
    """
    while _look_around(log, reader, queue, most):
        queue = log.state.queues.by_id(queue.id) or queue


def _look_around(log: CommitLog, reader: ChunkReader, queue: Queue, most: int) -> bool:
    """Look at each partition once, until `most` are deliverable; whether to do so again."""
    spans = spans_of(log.state, queue)
    behind = {key for key in spans if queue.looks(key) and queue.looked_up_to(key) < spans[key][1]}
    if not behind:
        return False
    now, has_looked = log.now_us(), False
    busy, waiting = queue.busy(now), _AHEAD  # an upper bound
    if queue.settings.order == "strict" and busy:
        return False
    enough = min(max(_ROWS // len(behind), most, _FEW), _ROWS)
    for key in queue.in_turn(spans):
        span = {key: spans[key]}
        found = sum(run.rows for run in queue.take(span, most, now, busy=busy))
        if found < most and key in behind:
            # Locked and delayed records do not count as waiting.
            waiting = queue.looked_and_due(now) if waiting >= _AHEAD else waiting
            if waiting >= _AHEAD:
                return False
            entered = _look(log, reader, queue, key, enough)
            if entered is not None:
                has_looked, waiting = True, waiting + entered
                queue = log.state.queues.by_id(queue.id) or queue  # a checkpoint may have been read
                found = sum(run.rows for run in queue.take(span, most, now, busy=busy))
        most -= found
        if most <= 0:
            return False
    return has_looked


def pass_refused(log: CommitLog, reader: ChunkReader, queue: Queue) -> bool:
    """Look at records that a filter may refuse, since they take room until then; False if none do.

    Nor if the queue is full without them, or they can't be read, or some of them were lost, which
    is for a receiver to be told.
    """
    capacity, ends = queue.settings.capacity, spans_of(log.state, queue)
    looked = {
        key: (start, queue.looked_up_to(key) if queue.has_filter(key) else end)
        for key, (start, end) in ends.items()
    }
    if capacity is None or queue.held(looked, log.state.time) >= capacity:
        return False
    for key, (_, end) in ends.items():
        begin = looked[key][1]
        if begin < end and not gaps_of(log, key, begin, end):
            with suppress(KmqError):
                if _look(log, reader, queue, key, min(capacity, _ROWS)) is not None:
                    return True
    return False


def _look(log: CommitLog, reader: ChunkReader, queue: Queue, key: Key, enough: int) -> int | None:
    """Look at a partition's next records, until `enough` enter; how many do, None without any."""
    # Both are read first: a later unbind, or a failed sync, makes the look conflict.
    unbound, losses = queue.unbound.get(key[0], 0), log.state.losses
    start, end = spans_of(log.state, queue).get(key, (0, 0))
    begin = max(queue.looked_up_to(key), start)
    until = min(end, begin + _ROWS)
    if begin >= until:
        return None
    lost = gaps_of(log, key, begin, until)
    if lost and lost[0].start <= begin:  # a gap is passed with one look, however long it is
        until = min(end, lost[0].end)
    elif lost:
        until = lost[0].start
    span = (begin, until)
    offsets, keys, until = _first_entering(log, reader, queue, key, span, enough=enough)
    runs = runs_of(key, offsets, np.zeros(len(offsets), np.int64))
    entered = tuple((run.first, run.rows) for run in runs)
    order = tuple(keys.tolist()) if queue.settings.order == "key" else ()
    entry = LookEntry(queue.id, *key, begin, until, entered, order, unbound)
    try:
        log.commit([Unit((entry,), losses=losses)], durable=False)
    except ConflictError:  # another receiver looked, or what was looked at was taken back
        lost = []
    log.refresh()
    if lost and until > lost[0].start:
        finish_free(log, queue, key, lost[0])  # records that were looked at before they were lost
        raise loss_of(log, queue, [(key, lost[0])])
    return len(offsets)


def entering_later(log: CommitLog, reader: ChunkReader, queue: Queue) -> Mapping[Key, Numbers]:
    """For partitions with a filter, the records that it lets in and that were not looked at yet."""
    found = {}
    for key, (start, end) in spans_of(log.state, queue).items():
        if queue.has_filter(key):
            begin = min(max(queue.looked_up_to(key), start), end)
            entering, _ = _entering(log, reader, queue, key, (begin, end))
            found[key] = queue.without_rows(key, entering)
    return found


def _first_entering(
    log: CommitLog,
    reader: ChunkReader,
    queue: Queue,
    key: Key,
    span: tuple[int, int],
    *,
    enough: int,
) -> tuple[Numbers, npt.NDArray[np.uint64], int]:
    """Of a span of one filter, about the first `enough` records that enter, and where they end."""
    (begin, end), step = span, enough
    offsets, order = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    while begin < end and sum(map(len, offsets)) < enough:
        until = min(begin + step, end)
        found, keys = _entering(log, reader, queue, key, (begin, until))
        offsets.append(found)
        order.append(keys)
        begin, step = until, 2 * step  # each costs time, also when a filter refuses most
    return np.concatenate(offsets), np.concatenate(order), begin


def _entering(
    log: CommitLog, reader: ChunkReader, queue: Queue, key: Key, span: tuple[int, int]
) -> tuple[Numbers, npt.NDArray[np.uint64]]:
    """The records of a span that enter the queue, and their ordering keys."""
    topic = log.state.topic_by_id(key[0])
    offsets, order = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    if topic is None:
        return offsets[0], order[0]
    filter_at = partial(queue.filter_at, key)
    layout = topic.layout(_COLUMNS)
    first = min(max(span[0], topic.partition(key[1]).first), span[1])
    for piece in topic.index(key[1]).outside_gaps(first, span[1]):
        for part in scan(log, reader, topic, key[1], piece, batch_rows=_ROWS, layout=layout):
            own = part.offsets()
            enter = let_in(filter_at, own, column_of(part.batch, "properties"))
            offsets.append(own[enter])
            if queue.settings.order == "key":
                order.append(_order_of(keys_of(part.batch), part.rows)[enter])
    return np.concatenate(offsets), np.concatenate(order)


def _order_of(keys: pa.Array | None, rows: int) -> npt.NDArray[np.uint64]:
    """The ordering key of each record: the hash of its key, 0 without one.

    Two keys of one hash wait for each other, which costs time but breaks no order.
    """
    if keys is None or keys.null_count == rows:
        return np.zeros(rows, np.uint64)
    all_keys = keys.fill_null(scalar(b"")) if keys.null_count else keys
    hashes = murmur2(all_keys).astype(np.uint64) + np.uint64(1)
    if keys.null_count:
        hashes[flags_of(keys.is_null())] = 0
    return hashes
