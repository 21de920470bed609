"""On the driver: one commit of all that the tasks of a batch have written.

- The whole batch is one unit of one commit: readers see all of it, or nothing.
- The batch's identity is in the same commit, before the records. The log refuses a commit that
  would repeat an identity, with everything in it.
- The commit names each row that a task wrote exactly once. The rows of a partition are in the order
  of the tasks.
- When this returns, the batch is on disk, whichever process committed it: the query may forget it.

docs/design/spark-sink.md has a table of crashes and their results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from kmq_spark.datasource.sink.merging import merged
from kmq_spark.datasource.sink.sink import Written
from kmq_spark.datasource.warning import warn_once
from kmq_storage.errors import OffsetOutOfRangeError
from kmq_storage.format.entries import BatchIdEntry, Entry, RecordsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids

_log = logging.getLogger(__name__)

_Runs = dict[Key, list[PartitionRecords]]


def commit_written(
    log: CommitLog,
    written: Sequence[Written],
    batch: BatchIdEntry | None,
    *,
    also: Sequence[Entry] = (),
) -> bool:
    """Make a batch visible at once and durable; False if it is stored already.

    `also` are entries of the same commit, after its records: what they change is stored with the
    batch, and once.
    """
    unit = _unit_of(log, written, () if batch is None else (batch,), also)
    assert _rows_in(unit) == sum(map(_rows_of, written)), "each row is named once"
    if not unit.entries:
        return True
    try:
        log.commit([unit], durable=True)
    except DuplicateCommitError as stored:
        _log.info("batch %s is stored already, in commit %s", batch, stored.lsn)
        _wait_for(log, stored.lsn)
        return False
    return True


def warn_of_skipped_write(batch: BatchIdEntry) -> None:
    """Log that the rows of a batch write were not stored: it may be no repetition."""
    target, _, application = batch.application.partition(" ")
    where = "" if target.strip("0") else ", for rows that name their topics in a column"
    warn_once(
        f"txnVersion {batch.version} of txnAppId {application!r}, or a later one, is stored "
        f"already{where}: this write's rows are not stored. That is right for a write that is "
        "repeated. A second write of one version, and a query that starts over with a new "
        "checkpoint, need a txnAppId of their own"
    )


def warn_of_old_batch(log: CommitLog, batch: BatchIdEntry) -> None:
    """Log that a stream's rows were not stored, unless this was its last batch, as in a replay."""
    last = log.refresh().batch_version(batch.application)
    if last is not None and batch.version < last:
        query = batch.application.partition(" ")[2]
        warn_once(
            f"batch {batch.version} of query {query} was not stored: the query has stored batch "
            f"{last} there already, so its checkpoint is an old one or a copy, and what it plans "
            "may be other records. Give it a new checkpoint"
        )


def _wait_for(log: CommitLog, lsn: int) -> None:
    """Return when a commit is on disk: the process that wrote it may have died before that."""
    with suppress(OffsetOutOfRangeError):  # a commit that is collected by now was on disk
        log.sync(log.written_commit(lsn))


def _rows_in(unit: Unit) -> int:
    return sum(entry.rows for entry in unit.entries if isinstance(entry, RecordsEntry))


def _rows_of(written: Written) -> int:
    rows = [entry.rows for entry in written.staged]
    for records in written.small:
        rows += [sized.batch.num_rows for sized in records.batches]
    return sum(rows)


def _unit_of(
    log: CommitLog, written: Iterable[Written], first: Sequence[Entry], last: Sequence[Entry]
) -> Unit:
    """Make the unit of the commit; it joins the small batches of several tasks."""
    stager = Stager(log.files, file_ids(log), sync=True, small_room=log.small_room)
    entries: list[Entry] = list(first)
    bodies: list[pa.Buffer] = []
    waiting: _Runs = {}
    room = log.inline_bytes_max

    def place(run: Sequence[PartitionRecords]) -> None:
        nonlocal room
        placed = stager.place(merged(run), room=room)
        entries.extend(placed.entries)
        bodies.extend(placed.bodies)
        room -= sum(body.size for body in placed.bodies)

    for each in written:
        for entry in each.staged:
            earlier = waiting.pop((entry.topic_id, entry.partition), None)
            if earlier is not None:
                place(earlier)
            entries.append(entry)
        for records in each.small:
            waiting.setdefault((records.topic_id, records.partition), []).append(records)
    for run in waiting.values():
        place(run)
    return Unit((*entries, *last), tuple(bodies))
