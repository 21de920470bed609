"""Every kind of file is damaged in many places, one at a time: is each found, and no lie told?

python -m tests.damage.sweep --samples 400 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import kmq_spark as kmq
from tests.damage.store import Contents, make_store, read_partition

#: Bytes at the begin and at the end of a file are looked at more closely.
_EDGE = 24


@dataclass(frozen=True, slots=True)
class Harm:
    """One file is changed in one place, or cut there."""

    file: str
    position: int
    #: The bits that change; 0 cuts the file.
    bits: int

    @contextmanager
    def done(self, folder: Path) -> Iterator[None]:
        """The store with this harm, during a block."""
        path = folder / self.file
        original = path.read_bytes()
        if self.bits:
            changed = bytearray(original)
            changed[self.position] ^= self.bits
            _overwrite(path, bytes(changed))
        else:
            os.truncate(path, self.position)
        try:
            yield
        finally:
            _overwrite(path, original)


def _overwrite(path: Path, contents: bytes) -> None:
    with path.open("r+b") as file:  # in place, as a disk does it
        file.write(contents)
        file.truncate(len(contents))


def harms(folder: Path, samples: int, seed: int) -> list[Harm]:
    """Flips and cuts of every file with contents, spread over it."""
    rng = random.Random(seed)
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        file, size = str(path.relative_to(folder)), path.stat().st_size
        if size:
            found += [Harm(file, at, 1 << rng.randrange(8)) for at in _spread(rng, size, samples)]
            found += [Harm(file, at, 0) for at in _spread(rng, size, samples // 4)]
    return found


def _spread(rng: random.Random, size: int, samples: int) -> list[int]:
    edges = [rng.randrange(min(_EDGE, size)), size - 1 - rng.randrange(min(_EDGE, size))]
    step = max(size // max(samples - 2, 1), 1)
    inside = [begin + rng.randrange(min(step, size - begin)) for begin in range(0, size, step)]
    return sorted({*edges, *inside})


def wrong_after(folder: Path, harm: Harm, expected: Contents) -> str | None:
    """What is wrong with how kmq takes this harm, or None."""
    with harm.done(folder):
        try:
            with kmq.open(folder, create=False, read_only=True) as store:
                report = store.verify(deep=True)
                lie = _lie(store, expected)
        except kmq.CorruptionError:
            return None
    if lie is not None:
        return f"{harm}: {lie}"
    if report.ok and not is_harmless(harm, report):
        return f"{harm} was not found"
    return None


def is_harmless(harm: Harm, report: kmq.Report) -> bool:
    """Whether nobody ever looks at these bytes, or they prove nothing by themselves."""
    if harm.file == "log/hint" or harm.file in report.unreferenced:
        return True
    return harm.file.endswith(".log") and (
        not harm.bits or any(note.startswith(harm.file) for note in report.notes)
    )


def _lie(store: kmq.Store, expected: Contents) -> str | None:
    for (topic, partition), records in expected.items():
        try:
            found = read_partition(store, topic, partition)
        except kmq.CorruptionError:
            continue
        if found != records:
            return f"{topic}-{partition} has {len(found)} of {len(records)} records, or others"
    return None


def main() -> int:
    """Run a sweep, and print what was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.sweep")
    parser.add_argument("--samples", type=int, default=200, help="flips per file")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        expected = make_store(store)
        all_harms = harms(store, asked.samples, asked.seed)
        missed = [text for each in all_harms if (text := wrong_after(store, each, expected))]
    print("\n".join(missed))
    print(f"{len(all_harms)} harms, {len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
