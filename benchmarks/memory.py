"""By hand: what sealing, compacting and reading many gigabytes take of memory.

`python -m benchmarks.memory --gb 20` makes a topic of that many GB for each way to spread keys and
prints the most that a process had which did one thing with it; `--keys one` takes one way alone.
Needs some 2.5 times as much room in the scratch folder, and in that of temporary files (`TMPDIR`)
what the keys take. With `--compressed` values compress to a quarter and are sealed with lz4 and
collected while the topic grows: less than its own size is enough, and more work is done per byte.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import kmq_spark as kmq
from benchmarks import stores
from benchmarks.cases.engine import peak_mb
from benchmarks.dataset import binary_column
from benchmarks.job import VALUE_BYTES
from benchmarks.peers import jars

_BATCH_ROWS = 50_000
#: With `--compressed`: how often a value repeats its bytes, and batches until the next sealing.
_REPEATS = 4
_BATCHES_BETWEEN = 200
_GB = 10**9


def _texts(numbers: np.ndarray, tail: bytes = b"") -> pa.Array:
    return pa.array([b"%012d%b" % (number, tail) for number in numbers.tolist()], pa.binary())


def _distinct(first: int, rows: int) -> pa.Array:
    return _texts(np.arange(first, first + rows))


def _random(first: int, rows: int) -> pa.Array:
    return _texts(np.random.default_rng(first).integers(0, 10_000_000, rows))


def _one(first: int, rows: int) -> pa.Array:
    return _texts(np.zeros(rows, np.int64))


def _growing(first: int, rows: int) -> pa.Array:
    numbers = np.arange(first, first + rows)
    return _texts(numbers) if first == 0 else _texts(numbers % 1_000_000, b"x" * 400)


#: How keys are spread: the column of keys of so many rows from one on.
KEYS: dict[str, Callable[[int, int], pa.Array]] = {
    "distinct": _distinct,
    "random": _random,
    "one": _one,
    "growing": _growing,
}


def _batches(gigabytes: float, spread: str, *, repeats: int) -> Iterator[pa.RecordBatch]:
    """Batches of so many GB together, whose values repeat the same bytes so often."""
    noise, first, size = np.random.default_rng(1), 0, 0
    while size < gigabytes * _GB:
        keys = KEYS[spread](first, _BATCH_ROWS)
        parts = np.frombuffer(noise.bytes(_BATCH_ROWS * VALUE_BYTES // repeats), np.uint8)
        buffer = pa.py_buffer(np.tile(parts.reshape(_BATCH_ROWS, -1), repeats).tobytes())
        values = binary_column(buffer, _BATCH_ROWS, VALUE_BYTES)
        yield pa.record_batch([keys, values], names=["key", "value"])
        first, size = first + _BATCH_ROWS, size + keys.nbytes + values.nbytes


def _fill(path: Path, gigabytes: float, spread: str, *, compressed: bool) -> None:
    with kmq.open(path, durability="os", maintenance=False) as store:
        compression = "lz4" if compressed else None
        store.create_topic(stores.TOPIC, cleanup="compact", compression=compression)
        repeats = _REPEATS if compressed else 1
        with store.producer() as producer:
            for count, batch in enumerate(_batches(gigabytes, spread, repeats=repeats), 1):
                producer.send_arrow(stores.TOPIC, batch).result()
                if compressed and count % _BATCHES_BETWEEN == 0:
                    store.seal()
                    store.checkpoint()
                    store.collect(grace=0)


def measure(
    folder: Path, gigabytes: float, spread: str, *, compressed: bool = False
) -> dict[str, float]:
    """The most memory in MiB of a process that seals, compacts or reads so much."""
    path = folder / spread
    _fill(path, gigabytes, spread, compressed=compressed)
    found = {} if compressed else {"seal": peak_mb("seal", str(path))}
    return found | {what: peak_mb(what, str(path)) for what in ("read", "compact")}


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each way to spread keys."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--gb", type=float, default=3.0, help="size of each topic (default 3)")
    parser.add_argument("--keys", action="append", choices=KEYS, help="one way alone; repeatable")
    parser.add_argument("--compressed", action="store_true", help="seal with lz4 while it grows")
    options = parser.parse_args(arguments)
    for spread in options.keys or KEYS:
        jars.cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.cache()) as folder:
            peaks = measure(Path(folder), options.gb, spread, compressed=options.compressed)
        told = ", ".join(f"{what} {mb:.0f} MiB" for what, mb in peaks.items())
        print(f"{options.gb:g} GB, keys {spread}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
