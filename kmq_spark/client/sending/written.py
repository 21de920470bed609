"""A commit of sends on its way: what of them it holds, and which places they get by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kmq_spark.client.sending.joining import joined
from kmq_spark.client.sending.sends import Sends
from kmq_spark.client.sending.work import Work
from kmq_spark.errors import KmqError
from kmq_storage.format.entries import Entry, ProducerEntry, RecordsEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import WrittenCommit


@dataclass(slots=True)
class Written:
    """Sends and the commit that holds those of them that could be stored."""

    sends: Sequence[Sends]
    units: dict[Work, Unit]
    sequence: int
    #: The works of a transaction, each with the rows that are stored already.
    works: Sequence[Work] = ()
    #: What a transaction commits beside its sends; it goes into one unit with them.
    beside: Unit | None = None
    #: None when nothing was left to store.
    commit: WrittenCommit | None = None
    #: Whether the commit was stored and collected since: the places are unknown.
    collected: bool = False
    #: The LSN by which everything is stored that was found stored already.
    lsn: int = 0

    def to_append(self) -> list[Unit]:
        """What is accepted or refused, each for itself."""
        units = list(self.units.values())
        return units if self.beside is None else [joined([*units, self.beside])]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be stored."""
        return not any(unit.entries for unit in self.to_append())

    def fail(self, error: KmqError) -> None:
        """None of the sends is stored."""
        self.commit = None
        for send in self.sends:
            send.failure = send.failure or error

    def finish(self) -> None:
        """Tell every send its places, and wake waiting callers."""
        if self.collected:
            for work in self.units:
                work.committed({})
        else:
            _tell_places(self.units, () if self.commit is None else self.commit.entries)
        for send in self.sends:
            send.finish()


def _tell_places(units: Mapping[Work, Unit], committed: Sequence[Entry]) -> None:
    """Hand each work the first offset it got per partition.

    The entries of a commit are in the order of its units, and the rows that one unit has
    for a partition are contiguous.
    """
    entries = iter(entry for entry in committed if isinstance(entry, RecordsEntry))
    for work, unit in units.items():
        first_offsets: dict[int, int] = {}
        count = sum(isinstance(entry, RecordsEntry) for entry in unit.entries)
        for entry in islice(entries, count):
            first_offsets.setdefault(entry.partition, entry.base_offset)
        work.committed(first_offsets, committed)


def own_part(commit: WrittenCommit, last: ProducerEntry) -> WrittenCommit:
    """Return a producer's part of a shared commit: its sequence entry follows its records."""
    end = commit.entries.index(last) + 1
    others = (n for n in range(end - 1) if isinstance(commit.entries[n], ProducerEntry))
    return replace(commit, entries=commit.entries[max(others, default=-1) + 1 : end])
