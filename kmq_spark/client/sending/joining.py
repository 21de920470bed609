"""Joining the units of a transaction into one, and telling whose a refused record of it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from kmq_spark.client.sending.row_work import RowWork
from kmq_spark.client.sending.work import Work
from kmq_spark.errors import ConflictError
from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.binding.uniq_binding import StoredBeforeError

#: Rows by partition.
_Rows = Counter[Key]


def joined(units: Sequence[Unit]) -> Unit:
    """One unit of several, in their order; those with `losses` were made from the first one on."""
    losses = (unit.losses for unit in units if unit.losses is not None)
    return Unit(
        tuple(_shifted(unit.entries for unit in units)),
        tuple(body for unit in units for body in unit.bodies),
        synced=all(unit.synced for unit in units),
        losses=next(losses, None),
        members=tuple(each for unit in units for each in unit.members),
        owned=tuple(each for unit in units for each in unit.owned),
    )


def leave_out(
    error: StoredBeforeError, units: Mapping[Work, Unit], in_files: Container[Work]
) -> None:
    """Make the works of joined units leave out records that were stored before.

    The works are then encoded again. ConflictError when such a record is in a file already.
    """
    shares = list(_shares(error, units))
    if any(work in in_files for work, _ in shares):
        raise ConflictError(
            f"{error}, and they went into files already, since the transaction is larger than "
            "the memory it may take (TRANSACTION_MEMORY_BYTES); commit more often",
            records=len(error.places),
        )
    if any(place is not None for place in error.places.values()):
        for work in units:
            if isinstance(work, RowWork):
                work.doubles.forget_expected()
    for work, own in shares:
        work.refuse(own)


def _shares(
    error: StoredBeforeError, units: Mapping[Work, Unit]
) -> Iterator[tuple[Work, StoredBeforeError]]:
    """Split the refusal by work, with the numbers that rows have in the work's own unit."""
    topic_id, before = error.topic_id, _Rows()
    for work, unit in units.items():
        rows = _rows(unit.entries)
        own = {
            (partition, row - before[topic_id, partition]): place
            for (partition, row), place in error.places.items()
            if 0 <= row - before[topic_id, partition] < rows[topic_id, partition]
        }
        if own:
            yield work, StoredBeforeError(topic_id, own, error.lsn)
        before += rows


def _shifted(parts: Iterable[Sequence[Entry]]) -> Iterator[Entry]:
    """All entries; row numbers in them now count from the first unit, not from their own."""
    before = _Rows()
    for entries in parts:
        for entry in entries:
            match entry:
                case ScheduleEntry():
                    yield entry.shifted(before[entry.queue_id, 0])
                case UniqEntry():
                    yield entry.shifted({p: before[entry.topic_id, p] for p, *_ in entry.uniqs})
                case _:
                    yield entry
        before += _rows(entries)


def _rows(entries: Iterable[Entry]) -> _Rows:
    rows = _Rows()
    for entry in entries:
        if isinstance(entry, RecordsEntry):
            rows[entry.topic_id, entry.partition] += entry.rows
    return rows
