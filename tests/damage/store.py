"""A store with every kind of file, and what is in it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

import kmq_spark as kmq
from kmq_storage.environment import SYSTEM
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.pins import Pin, encode_pin
from kmq_storage.objects.local import LocalDisk
from kmq_storage.queues.handing import try_acquire
from kmq_storage.queues.slips import OwnPage
from tests.support.storage import TOPIC_ID, make_topic, send

LOG_FILE_BYTES = 8 * 1024
TOPICS = {"t": None, "mapped": None, "packed": "zstd", "light": "lz4"}
SCHEMA = pa.schema(
    [("name", pa.dictionary(pa.int32(), pa.string())), ("price", pa.decimal128(12, 3))]
)

#: The values of a partition by offset.
Contents = dict[tuple[str, int], list[tuple[int, object]]]


def make_store(folder: Path, rounds: int = 3) -> Contents:
    """Segments compressed and not, checkpoints, pages, a pin, staged files, log files, a slip."""
    open_identity(LocalDisk(folder), SYSTEM, create=True, log_file_bytes=LOG_FILE_BYTES)
    with kmq.open(folder) as store:
        for name, compression in TOPICS.items():
            if name == "t":
                make_topic(store.log)
            else:
                store.create_topic(name, partitions=2, compression=compression)
        store.create_topic("typed", schema=SCHEMA)
        _fill_queues(store)
        for round_ in range(rounds):
            _fill(store, round_)
            if round_ < rounds - 1:
                store.seal()
                store.checkpoint()
            if round_ == 0:
                _fill(store, 7)  # in pages, but not in segments
                store.checkpoint()
        _note(store)
        _keep(folder, store.log.refresh().lsn)
        return contents_of(store)


def _fill(store: kmq.Store, round_: int) -> None:
    with store.producer() as producer:
        for name in ("mapped", "packed", "light"):
            for number in range(60):
                value = b"%s %d %d" % (name.encode(), round_, number)
                producer.send(name, value, key=b"%d" % (number % 9), headers={"h": "x"})
            producer.flush()
        producer.send_arrow("typed", _typed(40, round_)).result()
    for part in range(2):
        send(store.log, b"inside %d" % round_, b"the log", partition=part)
        send(store.log, b"staged %d" % round_ * 20, b"in a file", partition=part, staged=True)
    send(store.log, b"again", partition=1)
    assert store.log.state.topic_by_id(TOPIC_ID) is not None


def _fill_queues(store: kmq.Store) -> None:
    names = [f"q{number % 9}" for number in range(60)]
    store.keyed_queues("queues").put_batch(names, [b"queued %d" % n for n in range(60)])


def _note(store: kmq.Store) -> None:
    """Who received from a queue was killed, and its locks go on for a hundred years."""
    log = store.log
    store.create_queue("worked", lock_timeout=3e9)
    with store.producer() as producer:
        for number in range(9):
            producer.send_to_queue("worked", b"%d" % number)
    page, queue = OwnPage(log), log.refresh().queue("worked")
    slip = (page.id, page.next_round(), page.boot)
    found = try_acquire(log, queue, 9, "a process", slip=slip)
    assert found is not None
    page.begin(Slip(slip[1], found.until, found.runs, boot=page.boot))
    assert page.note([4], slip[1], 0)
    assert page.note([1, 2], slip[1], 1)


def _typed(rows: int, round_: int) -> pa.RecordBatch:
    names = pa.array([f"n{number % 5}" for number in range(rows)]).dictionary_encode()
    prices = pa.array(map(Decimal, range(round_, rows + round_)), pa.decimal128(12, 3))
    return pa.RecordBatch.from_arrays([names, prices], schema=SCHEMA)


def _keep(folder: Path, lsn: int) -> None:
    (folder / "pins").mkdir()
    (folder / "pins" / f"{'7' * 32}.json").write_bytes(encode_pin(Pin(lsn, 2**62)))
    assert json.loads((folder / "kmq.json").read_bytes())["format"] == 1


def contents_of(store: kmq.Store) -> Contents:
    """All records of a store."""
    return {
        (info.name, number): read_partition(store, info.name, number)
        for info in store.topics()
        for number in range(info.partitions)
    }


def read_partition(
    store: kmq.Store, topic: str, partition: int, start: int = 0, end: int = 2**62
) -> list[tuple[int, object]]:
    """Offsets and values of a partition."""
    bounds = {"start": {partition: start}, "end": {partition: end}}
    table = store.read(topic, partitions=[partition], **bounds).read_all()
    value, offset = ("price", "_offset") if topic == "typed" else ("value", "offset")
    return list(zip(table[offset].to_pylist(), table[value].to_pylist(), strict=True))
