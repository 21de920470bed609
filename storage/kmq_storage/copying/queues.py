"""Copying queues: their settings, their topics, and the state of each record, as of one moment.

A queue is copied whole, in one commit after its records: which records were delivered and how
often, and until when a record is locked or delayed. The next copy replaces the copied queue with
the source's queue of that moment. It doesn't if somebody received from the copied queue meanwhile:
from then on that queue is independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

from kmq_storage.errors import ConflictError, InvalidRequestError, KmqWarning
from kmq_storage.format.entries import BatchIdEntry, Entry
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.snapshot import copied, state_entry
from kmq_storage.queues.slips import tell_noted


def queues_of(source: CommitLog) -> list[Queue]:
    """The queues of a store as they are now, with receivers' notes that are not committed yet."""
    found = [copied(queue) for queue in source.state.queues]
    for queue in found:
        tell_noted(source.files, queue)
    return found


def copy_queues(queues: Sequence[Queue], lsn: int, target: CommitLog) -> int:
    """Copy queues, as of an LSN of their store, into another store; how many are new there.

    Their records must have been copied before. A warning names the queues that are not replaced
    because somebody received from them. AlreadyExistsError when another queue has the name,
    InvalidRequestError when the state of a queue is too large for a commit.
    """
    used, put = [], 0
    for queue in queues:
        try:
            put += _put(queue, lsn, target)
        except ConflictError:
            used.append(queue.name)
    if used:
        warnings.warn(
            f"queues of the target that were received from since they were copied are left as "
            f"they are: {', '.join(sorted(used))}",
            KmqWarning,
            stacklevel=3,
        )
    return put


def _put(queue: Queue, lsn: int, target: CommitLog) -> bool:
    with suppress(ConflictError):
        return _copy(queue, lsn, target)
    return _copy(queue, lsn, target)  # another process may have copied it first


def _copy(queue: Queue, lsn: int, target: CommitLog) -> bool:
    mark = f"copy/{queue.id.hex()}/queue"
    turns = f"{mark}/turns"
    state = target.refresh()
    found, known = state.queues.by_id(queue.id), state.batch_version(turns) or 0
    entry = state_entry(queue, None if found is None else known)
    if found is not None and entry == state_entry(found, known):
        return False
    entries: list[Entry] = [BatchIdEntry(mark, lsn), entry]
    if queue.turns > known:
        entries.append(BatchIdEntry(turns, queue.turns))
    try:
        target.commit([Unit(tuple(entries))])
    except DuplicateCommitError:  # another process copied it first
        return False
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"queue {queue.name} holds or delays more records than fit into one commit of the "
            f"target ({error.message}); copy again when there are fewer",
            queue=queue.name,
        ) from error
    return True
