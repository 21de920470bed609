"""The golden store of the engine: `format-1-engine`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.entries import GroupOffsetsEntry, ProducerEntry, TopicEntry
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.format.records import HEADERS, KEY, PROPERTIES
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import SizedBatch
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges
from kmq_storage.maintenance.pins import Pin, encode_pin
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.trim import plan_trim, trim
from tests.data.making import commit, golden_log, rows, send

STREAM, STATE, CUT, GONE = (bytes([n]) * 16 for n in (21, 22, 23, 24))
EVERYTHING = KEY | HEADERS | PROPERTIES


def keyed(first: int, count: int, keys: int) -> SizedBatch:
    """Records whose keys come again after `keys` of them; every seventh is a tombstone."""
    sized = rows(first, count, KEY)
    numbers = range(first, first + count)
    columns = {
        "key": pa.array([b"key %d" % (n % keys) for n in numbers]),
        "value": pa.array([b"value %d" % n if n % 7 else None for n in numbers]),
    }
    schema = sized.batch.schema
    arrays = [columns.get(name, sized.batch.column(name)) for name in schema.names]
    return replace(sized, batch=pa.RecordBatch.from_arrays(arrays, schema=schema))


def make(folder: Path) -> None:
    """Write the store: all that maintenance writes, and a tail that no checkpoint knows."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(STREAM, "stream", 2, {"compression": "lz4", "retention": 9.5}))
        commit(log, TopicEntry(STATE, "state", 1, {"cleanup": "compact"}))
        commit(log, TopicEntry(CUT, "cut", 1, {"compression": "zstd"}))
        commit(log, TopicEntry(GONE, "gone", 1, {}))
        _first_records(log)
        checkpoint(log)
        _sealed_and_trimmed(log)
        commit(log, TopicEntry(GONE, "gone", 0, {}))
        checkpoint(log)
        collect(log, grace=0.0)
        send(log, STREAM, 1, rows(200, 3, 0))
        seal(log, plan_seal(log.refresh()))
        checkpoint(log)
        _tail(log)
        log.files.publish(paths.pin_file(bytes(16)), [encode_pin(Pin(lsn=1, expires=1))], sync=True)


def _first_records(log: CommitLog) -> None:
    for first in range(0, 12, 3):
        send(log, STREAM, 0, rows(first, 3, EVERYTHING))
    send(log, STREAM, 0, rows(12, 40, KEY), staged=True)
    send(log, STREAM, 1, rows(100, 5, KEY), ProducerEntry("producer", 1, 0))
    for first in range(0, 60, 20):
        send(log, STATE, 0, keyed(first, 20, 10))
    for first in (0, 10, 20):
        send(log, CUT, 0, rows(first, 10, 0))
    send(log, GONE, 0, rows(0, 2, 0))


def _sealed_and_trimmed(log: CommitLog) -> None:
    seal(log, plan_seal(log.refresh(), segment_bytes=700))
    state = log.refresh()
    trim(log, plan_trim(state.topic("stream"), {0: 5}), state.lsn)
    state = log.refresh()
    compact_keys(log, state.topic("state"), state.lsn, segment_bytes=900)
    merge(log, plan_merges(state.topic("stream"), state.lsn, now=0))


def _tail(log: CommitLog) -> None:
    """What only the log knows: each kind of entry that changes where records stand."""
    send(log, STATE, 0, keyed(60, 5, 10))
    send(log, STREAM, 0, rows(52, 40, KEY), staged=True)
    seal(log, [each for each in plan_seal(log.refresh()) if each.topic.name == "state"])
    state = log.refresh()
    compact_keys(log, state.topic("state"), state.lsn)
    state = log.refresh()
    trim(log, plan_trim(state.topic("stream"), {1: 2}), state.lsn)
    lsn = log.refresh().lsn
    commit(log, GapEntry(CUT, 0, 10, 20, 10, 100, lsn, "lost in a fire"))
    commit(log, GroupOffsetsEntry("group", -1, STREAM, ((0, 20), (1, 4))))
    send(log, STREAM, 0, rows(92, 2, EVERYTHING), ProducerEntry("producer", 1, 1))
