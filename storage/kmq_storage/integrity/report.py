"""Reports of verify and repair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged place, and the records that it held, as far as is known."""

    #: The file's name in the store.
    file: str
    topic: str | None = None
    partition: int | None = None
    #: Offsets [start, end); None for an unknown end.
    start: int | None = None
    end: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        records = "" if self.topic is None else f": {self.topic}-{self.partition}"
        if self.start is not None:
            end = "on" if self.end is None else f"to {self.end - 1}"
            records += f", offsets {self.start} {end}"
        return f"{self.file}{records}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a file that is unusual, but does no harm."""

    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


Finding: TypeAlias = Damage | Note


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verification, or of a repair."""

    ok: bool
    damage: list[Damage] = field(default_factory=list)
    #: Files that nothing refers to. `collect` deletes kmq's own in time, and never those of others.
    unreferenced: list[str] = field(default_factory=list)
    #: Harmless findings, and what a repair did, in words.
    notes: list[str] = field(default_factory=list)


def report_of(findings: Iterable[Finding], unreferenced: Iterable[str] = ()) -> Report:
    """The report of these findings, each place once."""
    damage: dict[tuple[object, ...], Damage] = {}
    notes = []
    for finding in findings:
        if isinstance(finding, Damage):
            place = (finding.file, finding.topic, finding.partition, finding.start, finding.end)
            damage.setdefault(place, finding)
        else:
            notes.append(str(finding))
    return Report(not damage, list(damage.values()), list(unreferenced), notes)
