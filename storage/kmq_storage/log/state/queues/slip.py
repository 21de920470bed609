"""Records of a queue whose answers are noted on a slip."""

from __future__ import annotations

from dataclasses import dataclass

from kmq_storage.format.queue_entries import Run


@dataclass(frozen=True, slots=True)
class Slip:
    """Records whose receiver notes in a file which are done, until a commit says so."""

    #: The number of this use of the slip's file.
    round: int
    #: When the locks end, UTC us. Other receivers then commit the notes and get the other records.
    until: int
    #: The delivered records, in the order of the notes.
    runs: tuple[Run, ...]
    #: Whether another receiver took the slip over; its receiver never uses it again.
    taken: bool = False
    #: The boot of the machine in which its use began; None when the notes have no check bits.
    boot: int | None = None

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(run.rows for run in self.runs)
