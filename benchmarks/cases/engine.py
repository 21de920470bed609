"""The storage engine: sealed reads, sealing, compaction, one record of many, memory.

Rates are of CPU time where the target is one of a core. Memory is the most that a process of its
own had, for that one thing, with what it mapped of files.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kmq_spark as kmq
from benchmarks import dataset, stores
from benchmarks.cases.senders import SPAWN
from benchmarks.clock import stopwatch
from benchmarks.job import PARTITIONS, Job, Measure, Sample

#: Records per key in the topic that is compacted.
_VERSIONS = 4
_LOOKUPS = 300
#: How often a topic is read in one round: once takes 40 ms, of which waking the cores is a part.
_READS = 10
#: Seconds in which a producer's store is maintained twice.
_LONG = 22.0


def _filled(job: Job, rows: int, **settings: Any) -> Path:
    path = stores.new_path(job)
    with kmq.open(path, durability="os", maintenance=False) as store:
        store.create_topic(stores.TOPIC, partitions=PARTITIONS, **settings)
        distinct = rows // _VERSIONS
        with store.producer() as producer:
            for _ in range(_VERSIONS):
                for batch in dataset.arrow_batches(distinct, 100_000):
                    producer.send_arrow(stores.TOPIC, batch)
                producer.flush()
    return path


def _sealed(job: Job, rows: int) -> Path:
    """A sealed topic, the same for every case that reads so many rows.

    In how large pages the page cache has a file differs from file to file, and with it what
    reading takes, mapped or not.
    """
    shared = job.path("stores", f"sealed-{rows}")
    if not shared.exists():
        path = _filled(job, rows)
        with kmq.open(path, maintenance=False) as store:
            store.seal()
            store.checkpoint()
        path.rename(shared)
    return shared


def _touched(batch: pa.RecordBatch) -> int:
    """What a reader does at least: know how long each value is."""
    return int(pc.sum(pc.binary_length(batch.column("value"))).as_py())


def kmq_read(job: Job) -> Measure:
    """`Store.read` of a sealed topic, every checksum verified."""
    rows = job.sizes.records * 4
    path = _sealed(job, rows)
    names = ["key", "value", "offset", "timestamp"]

    def measure() -> Sample:
        with kmq.open(path, maintenance=False) as store, stopwatch() as watch:
            for _ in range(_READS):
                for batch in store.read(stores.TOPIC, columns=names):
                    _touched(batch)
        return watch.rate(rows * _READS)

    return measure


def _segments(path: Path) -> list[str]:
    return [str(file) for file in sorted(path.glob("segments/*/*/*.arrow"))]


def pyarrow_read(job: Job) -> Measure:
    """The same segments by plain pyarrow, read into memory."""
    return _pyarrow(job, pa.OSFile)


def pyarrow_map(job: Job) -> Measure:
    """The same segments by plain pyarrow, mapped: no byte of a value is looked at."""
    return _pyarrow(job, pa.memory_map)


def _pyarrow(job: Job, source: Callable[[str], Any]) -> Measure:
    rows = job.sizes.records * 4
    files = _segments(_sealed(job, rows))

    def measure() -> Sample:
        with stopwatch() as watch:
            for file in files * _READS:
                reader = pa.ipc.open_file(source(file))
                for number in range(reader.num_record_batches):
                    _touched(reader.get_batch(number))
        return watch.rate(rows * _READS)

    return measure


def all_columns(job: Job) -> Measure:
    """A sealed typed topic of 20 columns, each column that is read summed up."""
    return _columns_read(job, None)


def two_columns(job: Job) -> Measure:
    """The same, but two of the columns are asked for."""
    return _columns_read(job, ["n3", "text2"])


def _columns_read(job: Job, columns: list[str] | None) -> Measure:
    rows, path = job.sizes.records * 4, stores.new_path(job)
    batch = dataset.typed_batch(50_000)
    with kmq.open(path, durability="os", maintenance=False) as store:
        store.create_topic(stores.TOPIC, partitions=1, schema=batch.schema)
        with store.producer() as producer:
            for _ in range(rows // batch.num_rows):
                producer.send_arrow(stores.TOPIC, batch).result()
        store.seal()
        store.checkpoint()

    def measure() -> Sample:
        with kmq.open(path, maintenance=False) as store, stopwatch() as watch:
            for _ in range(_READS):
                for read in store.read(stores.TOPIC, columns=columns or batch.schema.names):
                    for column in read.columns:
                        _summed(column)
        return watch.rate(rows * _READS)

    return measure


def _summed(column: pa.Array) -> pa.Scalar:
    is_text = pa.types.is_string(column.type)
    return pc.sum(pc.binary_length(column) if is_text else column)


def seal(job: Job) -> Measure:
    """Records moved from the log into segments, per second of CPU."""
    rows = job.sizes.records * 4

    def measure() -> Sample:
        with kmq.open(_filled(job, rows), maintenance=False) as store:
            begin = time.process_time()
            store.seal()
            spent = time.process_time() - begin
            amplification = store.stats().write_amplification
        return {"cpu_rate": rows / spent, "amplification_times": amplification}

    return measure


def compact(job: Job) -> Measure:
    """Records looked at by key compaction, three of four dropped, per second of CPU."""
    rows = job.sizes.records * 4

    def measure() -> Sample:
        with kmq.open(_filled(job, rows, cleanup="compact"), maintenance=False) as store:
            store.seal()
            begin = time.process_time()
            report = store.compact(stores.TOPIC)
            spent = time.process_time() - begin
        if report.dropped != rows - rows // _VERSIONS:
            raise RuntimeError(f"{report.dropped} records dropped of {rows}")
        return {"cpu_rate": rows / spent}

    return measure


def lookup(job: Job) -> Measure:
    """One record by its offset, anywhere in a sealed topic."""
    rows = job.sizes.records * 10
    path = _sealed(job, rows)

    def measure() -> Sample:
        rng, spent = random.Random(7), []
        with kmq.open(path, maintenance=False) as store:
            ends = {number: end for number, (_, end) in store.offsets(stores.TOPIC).items()}
            for _ in range(_LOOKUPS):
                number = rng.randrange(len(ends))
                offset = rng.randrange(ends[number])
                begin = time.perf_counter()
                found = store.read(
                    stores.TOPIC,
                    partitions=[number],
                    start={number: offset},
                    end={number: offset + 1},
                ).read_all()
                spent.append(time.perf_counter() - begin)
                if found.column("offset").to_pylist() != [offset]:
                    raise RuntimeError(f"another record at {number}/{offset}")
        return {"p50_ms": statistics.median(spent) * 1e3}

    return measure


def memory(job: Job) -> Measure:
    """What sealing, compacting and reading take, each in a process of its own."""

    def measure() -> Sample:
        path = str(_filled(job, job.sizes.records * 10, cleanup="compact"))
        return {f"{what}_mb": peak_mb(what, path) for what in ("seal", "compact", "read")}

    return measure


def peak_mb(what: str, path: str) -> float:
    """The most MiB that a process of its own had which seals, compacts or reads a store."""
    answer = SPAWN.Queue()
    process = SPAWN.Process(target=_do, args=(what, path, answer))
    process.start()
    peak: float = answer.get(timeout=3600)
    process.join()
    return peak


def _do(what: str, path: str, answer: Any) -> None:
    with kmq.open(path, maintenance=False) as store:
        if what == "seal":
            store.seal()
        elif what == "compact":
            store.compact(stores.TOPIC)
        else:
            for batch in store.read(stores.TOPIC):
                _touched(batch)
    # Not ru_maxrss, which begins with what the parent process had.
    status = Path("/proc/self/status").read_text()
    answer.put(next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024)


def quiet(job: Job) -> Measure:
    """`send_batch` while nobody maintains the store."""
    return lambda: _sending(job, job.sizes.seconds, maintenance=False)


def maintained(job: Job) -> Measure:
    """`send_batch` while another process seals, checkpoints and collects all the time."""

    def measure() -> Sample:
        with stores.fresh(job, "os", maintenance=False) as (store, path):
            stop = SPAWN.Event()
            process = SPAWN.Process(target=_maintain, args=(path, stop))
            process.start()
            try:
                return _sent(store, job.sizes.seconds)
            finally:
                stop.set()
                process.join()

    return measure


def quiet_for_long(job: Job) -> Measure:
    """`send_batch` for so long that by default maintenance would have begun twice."""
    return lambda: _sending(job, _LONG, maintenance=False)


def quiet_with_large(job: Job) -> Measure:
    """The same with batches of 100,000."""
    return lambda: _sending(job, _LONG, maintenance=False, rows=100_000)


def maintained_by_default(job: Job) -> Measure:
    """The same while a thread of the producer's process maintains the store, as by default."""
    return lambda: _sending(job, _LONG, maintenance=True)


def maintained_with_large(job: Job) -> Measure:
    """The same with batches of 100,000."""
    return lambda: _sending(job, _LONG, maintenance=True, rows=100_000)


def _sending(job: Job, seconds: float, *, maintenance: bool, rows: int = 1_000) -> Sample:
    with stores.fresh(job, "os", maintenance=maintenance) as (store, _):
        return _sent(store, seconds, rows)


def _sent(store: kmq.Store, seconds: float, rows: int = 1_000) -> Sample:
    values, keys = dataset.values(rows), dataset.keys(rows)
    spent: list[float] = []
    with store.producer() as producer:
        end = time.perf_counter() + seconds
        begin = time.perf_counter()
        while (now := time.perf_counter()) < end:
            producer.send_batch(stores.TOPIC, values, keys).result()
            spent.append(time.perf_counter() - now)
        total = time.perf_counter() - begin
    spent.sort()
    return {"rate": len(spent) * rows / total, "p99_ms": spent[len(spent) * 99 // 100] * 1e3}


def _maintain(path: str, stop: Any) -> None:
    os.nice(10)  # as a maintainer that cares for its neighbours would
    with kmq.open(path, maintenance=False) as store:
        while not stop.wait(1.0):
            store.maintain()
