"""Writing a checkpoint of the current durable state; `log.checkpoints.checkpoint` has the protocol.

No checkpoint is written of a state with damage, because collection could then drop the commits
that show the damage.
"""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage.errors import CorruptionError
from kmq_storage.log.checkpoints.checkpoint import reaches, write_checkpoint
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable, translated
from kmq_storage.log.moving import trying_again
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.reports import CheckpointReport
from kmq_storage.model import LogDamage
from kmq_storage.objects.allocators import give_back


def checkpoint(log: CommitLog) -> CheckpointReport:
    """Write a checkpoint, unless the newest one is already of this LSN.

    CorruptionError while there is damage, which would be forgotten with the commits that show it.
    """
    return _trying(log, _written_unless_there)


def new_checkpoint(log: CommitLog) -> CheckpointReport:
    """As `checkpoint`, but write one even if there is one of this LSN."""
    return _trying(log, _written)


def _trying(log: CommitLog, write: Callable[[CommitLog], CheckpointReport]) -> CheckpointReport:
    check_writable(log.files)
    with translated(log.files.url):
        report = trying_again(lambda: write(log))
    give_back()  # a queue with a million records took 200 MiB
    return report


def _written_unless_there(log: CommitLog) -> CheckpointReport:
    state = log.refresh()
    if log_damage(state) is None and reaches(log.files, state.lsn):
        return CheckpointReport(state.lsn)  # quick: no topic has to be looked at
    return _written(log)


def _written(log: CommitLog) -> CheckpointReport:
    began = log.files.now()
    state, cursor = log.snapshot()  # it syncs first
    check_undamaged(state)
    if not state.lsn:
        return CheckpointReport(0)
    # Another process may have written it meanwhile; writing it twice does no harm.
    pages = write_checkpoint(log.files, state, cursor, log.environment.new_uuid, began=began)
    return CheckpointReport(state.lsn, pages)


def check_undamaged(state: StoreState) -> None:
    """CorruptionError when a part of the log can't be read; it says what to do."""
    damage = log_damage(state)
    if damage is not None:
        raise CorruptionError(what_to_do(damage), file=damage.file, lsn=damage.first_lsn)


def log_damage(state: StoreState) -> LogDamage | None:
    """The last part of the log that can't be read, or None; with one, nothing is collected."""
    return state.broken or (state.damage[-1] if state.damage else None)


def what_to_do(damage: LogDamage) -> str:
    """A message that names the damage, its effect on maintenance, and the two ways out."""
    return (
        f"commits {damage.first_lsn} to {damage.last_lsn} in {damage.file} are damaged "
        f"({damage.reason}): nothing is sealed, checkpointed or deleted, and the store grows, "
        "until the file is put back from a copy, or what can't be read is given up by "
        "`kmq repair --drop-damaged` (`Store.repair(drop_damaged=True)`)"
    )
