"""By hand: what sealing, compacting and reading many gigabytes take of memory.

`python -m benchmarks.memory --gb 20` makes a topic of that many GB for each way to spread keys and
prints the most that a process had which did one thing with it; `--keys one` takes one way alone.
Needs some 2.5 times as much room in the scratch folder, and in that of temporary files (`TMPDIR`)
what the keys take.
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


def _batches(gigabytes: float, spread: str) -> Iterator[pa.RecordBatch]:
    noise, first, size = np.random.default_rng(1), 0, 0
    while size < gigabytes * _GB:
        keys = KEYS[spread](first, _BATCH_ROWS)
        buffer = pa.py_buffer(noise.bytes(_BATCH_ROWS * VALUE_BYTES))
        values = binary_column(buffer, _BATCH_ROWS, VALUE_BYTES)
        yield pa.record_batch([keys, values], names=["key", "value"])
        first, size = first + _BATCH_ROWS, size + keys.nbytes + values.nbytes


def measure(folder: Path, gigabytes: float, spread: str) -> dict[str, float]:
    """The most memory in MiB of a process that seals, compacts or reads so much."""
    path = folder / spread
    with kmq.open(path, durability="os", maintenance=False) as store:
        store.create_topic(stores.TOPIC, cleanup="compact")
        with store.producer() as producer:
            for batch in _batches(gigabytes, spread):
                producer.send_arrow(stores.TOPIC, batch).result()
    found = {"seal": peak_mb("seal", str(path)), "read": peak_mb("read", str(path))}
    return found | {"compact": peak_mb("compact", str(path))}


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each way to spread keys."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--gb", type=float, default=3.0, help="size of each topic (default 3)")
    parser.add_argument("--keys", action="append", choices=KEYS, help="one way alone; repeatable")
    options = parser.parse_args(arguments)
    for spread in options.keys or KEYS:
        jars.cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.cache()) as folder:
            peaks = measure(Path(folder), options.gb, spread)
        told = ", ".join(f"{what} {mb:.0f} MiB" for what, mb in peaks.items())
        print(f"{options.gb:g} GB, keys {spread}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
