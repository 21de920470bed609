"""What a measuring process is told, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

Sample = dict[str, float]
Measure = Callable[[], Sample]

PARTITIONS = 4
CORES = 2
VALUE_BYTES = 100
KEY_BYTES = 12


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured: records, Spark rows, rounds, seconds of the waiting cases, GiB read."""

    records: int
    spark_rows: int
    rounds: int
    seconds: float
    gib: float


FULL = Sizes(records=1_000_000, spark_rows=2_000_000, rounds=3, seconds=5.0, gib=1.0)
QUICK = Sizes(records=100_000, spark_rows=200_000, rounds=2, seconds=3.0, gib=0.25)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One case to measure: where it may write, how much, and how to reach the peers."""

    case: str
    folder: str
    sizes: Sizes
    bootstrap: str | None = None
    jars: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The job as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job of such a line."""
        fields = json.loads(text)
        sizes, jars = Sizes(**fields.pop("sizes")), tuple(fields.pop("jars"))
        return cls(sizes=sizes, jars=jars, **fields)

    def path(self, *parts: str) -> Path:
        """A path in the scratch folder, with its parents made."""
        path = Path(self.folder, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def broker(self) -> str:
        """The address of the broker; a case that asks for it is only run when there is one."""
        assert self.bootstrap is not None
        return self.bootstrap
