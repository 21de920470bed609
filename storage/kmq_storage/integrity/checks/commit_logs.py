"""Checks the commit log of a store, on a disk or in a bucket."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_storage.integrity.checks.small_files import check_hint
from kmq_storage.integrity.files.commit_objects import check_objects
from kmq_storage.integrity.files.log_files import LogFilesCheck
from kmq_storage.integrity.remains.lost_end import lost_end
from kmq_storage.integrity.report import Damage, Finding
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.open import bucket_files
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.paths import HINT


def check_log(log: CommitLog, state: StoreState, *, deep: bool) -> Iterator[Finding]:
    """The damage of the commits up to the LSN of a state."""
    if isinstance(log, LocalLog):
        hint = open_hint(log.files, log.identity.seed, log.environment)
        if log.files.exists(HINT):  # a clone has none before its first writer
            yield from check_hint(hint)
        journal = Journal(log.files, log.identity, hint)
        yield from LogFilesCheck(journal, state, deep=deep).findings()
        return
    yield from check_objects(bucket_files(log.files), log.identity.seed, state, deep=deep)
    lost = None if state.broken is not None else lost_end(log)
    if lost is not None:
        reason = f"commits {lost.first_lsn} to {lost.last_lsn}: {lost.reason}"
        yield Damage(lost.file, reason=reason)
