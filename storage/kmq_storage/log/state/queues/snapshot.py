"""Queues in a checkpoint's root, written and read back: JSON, and Arrow for the rows."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Array
from kmq_storage.format.plain_columns import fixed_batch, numbers_of
from kmq_storage.format.queue_entries import QueueStateEntry, Run
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import Queues, queue_settings_of
from kmq_storage.log.state.queues.rows import ROW
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.queues.source import Source
from kmq_storage.log.state.queues.topics import Binding

_COLUMNS = ROW.names or ()
#: The row of older versions, whose delivery number had four bytes.
_OLDER_ROW = np.dtype([(name, "<i4" if name == "count" else ROW[name]) for name in _COLUMNS])
#: Rows that are restored together: those of some blocks.
_PIECE = 1 << 16
_SCHEMA = pa.schema(
    [("source", pa.int32()), *((name, pa.from_numpy_dtype(ROW[name])) for name in _COLUMNS)]
)


def queues_snapshot(queues: Queues) -> list[Any]:
    """Each queue as JSON, with its partitions but not their rows."""
    return [
        {
            "id": queue.id.hex(),
            "name": queue.name,
            "settings": queue.settings.to_json() | _slips(queue) | _unbound(queue),
            "bindings": [[key.hex(), each.periods] for key, each in queue.bindings.items()],
            "sources": [[key[0].hex(), key[1], s.next] for key, s in queue.sources.items()],
            "totals": [queue.delivered, queue.acked, queue.dead, queue.expired, queue.turns],
        }
        for queue in queues
    ]


def copied(queue: Queue) -> Queue:
    """A copy of a queue, which later commits do not change."""
    return _only(*_snapshot(queue))


def state_entry(queue: Queue, replaces: int | None) -> QueueStateEntry:
    """An entry that puts this queue into another store.

    `replaces`: the `turns` of the queue that it replaces there, or None if there must be none.
    """
    (facts,), rows = _snapshot(queue)
    return QueueStateEntry(facts, rows.decode(), replaces)


def restored(entry: QueueStateEntry) -> Queue:
    """The queue of an entry made by `state_entry`."""
    return _only([dict(entry.facts)], entry.rows.encode())


def _only(members: list[Any], rows: bytes) -> Queue:
    """The only queue of a snapshot."""
    alone = Queues()
    restore_queues(alone, members, rows)
    (queue,) = alone
    return queue


def _snapshot(queue: Queue) -> tuple[list[Any], bytes]:
    alone = Queues()
    alone.add(queue)
    return queues_snapshot(alone), rows_snapshot(alone)


def _slips(queue: Queue) -> dict[str, Any]:
    """The slips as settings, so that a version that does not know slips refuses the queue."""
    found: dict[str, Any] = {}
    for key, each in queue.slips.items():
        runs = [[run[0].hex(), *run[1:]] for run in each.runs]
        facts = [key.hex(), each.round, each.until, each.taken, runs]
        if each.boot is None:
            found.setdefault("slips", []).append(facts)
        else:
            found.setdefault("sealed_slips", []).append([*facts, each.boot])
    return found


def _unbound(queue: Queue) -> dict[str, Any]:
    """How often topics were unbound, and their unfinished delivered records.

    As settings, so that a version that does not know them refuses the queue.
    """
    unbound = [[key.hex(), times] for key, times in queue.unbound.items()]
    left = [[key[0].hex(), key[1], b64encode(rows.tobytes()).decode()] for key, rows in queue.left]
    return ({"unbound": unbound} if unbound else {}) | ({"left_rows": left} if left else {})


def rows_snapshot(queues: Queues) -> bytes:
    """The rows of all partitions of all queues, in their order, as an Arrow stream in base64."""
    tables = [source.rows.tables() for queue in queues for source in queue.sources.values()]
    sizes = [sum(map(len, blocks)) for blocks in tables]
    numbers = np.repeat(np.arange(len(tables), dtype=np.int32), sizes)
    blocks = [np.zeros(0, ROW), *chain.from_iterable(tables)]
    # Column by column, as there may be a million.
    columns = (np.concatenate([rows[name] for rows in blocks]) for name in _COLUMNS)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(fixed_batch([numbers, *columns], _SCHEMA))
    return b64encode(sink.getvalue())


def restore_queues(queues: Queues, members: list[Any], rows: bytes) -> None:
    """Add the queues of a checkpoint."""
    sources: list[Source] = []
    for facts in members:
        queue = _restored_queue(facts)
        queues.add(queue)
        sources += queue.sources.values()
    for number, table in _tables(rows):
        sources[number].rows.put(table)


def _restored_queue(facts: dict[str, Any]) -> Queue:
    settings = dict(facts["settings"])
    slips = [*settings.pop("slips", ()), *settings.pop("sealed_slips", ())]
    left = [(*each, ROW) for each in settings.pop("left_rows", ())]
    older = [(*each, _OLDER_ROW) for each in settings.pop("left", ())]
    unbound = settings.pop("unbound", [(topic_id, 1) for topic_id, *_ in older])
    queue = Queue(
        bytes.fromhex(facts["id"]),
        facts["name"],
        queue_settings_of(facts["name"], settings),
        {bytes.fromhex(key): _restored_binding(each) for key, each in facts["bindings"]},
        unbound={bytes.fromhex(key): times for key, times in unbound},
    )
    for topic_id, partition, following in facts["sources"]:
        source = queue.source((bytes.fromhex(topic_id), partition))
        source.next = following
    queue.delivered, queue.acked, queue.dead, queue.expired, queue.turns = facts["totals"]
    for key, number, until, taken, runs, *boot in slips:
        found = tuple(Run(bytes.fromhex(topic), *rest) for topic, *rest in runs)
        queue.slips[bytes.fromhex(key)] = Slip(number, until, found, taken, *boot)
    for topic_id, partition, table, row in (*left, *older):
        rows = np.frombuffer(b64decode(table), row).astype(ROW)
        queue.left.keep((bytes.fromhex(topic_id), partition), rows)
    return queue


def _restored_binding(periods: list[Any]) -> Binding:
    return Binding(tuple((tuple(starts), expression) for starts, expression in periods))


def _tables(rows: bytes) -> Iterator[tuple[int, Array]]:
    """The rows of each partition, with its number, some at a time."""
    if not rows:
        return
    stream = b64decode(rows)
    numbers = _column(stream, "source")
    starts = range(0, len(numbers), _PIECE)
    pieces = [np.zeros(min(_PIECE, len(numbers) - start), ROW) for start in starts]
    for name in _COLUMNS:
        column = _column(stream, name)
        for start, piece in zip(starts, pieces, strict=True):
            piece[name] = column[start : start + len(piece)]
    for start in starts:
        piece = pieces.pop(0)  # let go, as who gets it keeps a copy
        here = numbers[start : start + len(piece)]
        bounds = np.flatnonzero(np.diff(here)) + 1
        yield from zip(here[[0, *bounds]].tolist(), np.split(piece, bounds), strict=True)


def _column(stream: bytes, name: str) -> Array:
    """One column of the rows: unpacked by itself, as all take as much memory as the rows."""
    options = pa.ipc.IpcReadOptions(included_fields=[_SCHEMA.get_field_index(name)])
    batch = pa.ipc.open_stream(stream, options=options).read_next_batch()
    return numbers_of(batch.column(name))
