"""Restoring files whose right bytes are known: `kmq.json`, and the empty space of log files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.identity import decode_identity, encode_identity
from kmq_storage.integrity.checks.small_files import identity_differs
from kmq_storage.integrity.files.commit_objects import unmarked
from kmq_storage.log.bucket.collected import mark_collected
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.disk.replica import Replica
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import AppendLock, SyncLock
from kmq_storage.log.open import bucket_files
from kmq_storage.maintenance.references import references_of


def restore(log: CommitLog) -> Iterator[str]:
    """Write such files again; yields what was done, in words. Damaged commits stay as they are."""
    if identity_differs(log.files):
        _write_identity(log)
        yield f"{paths.STORE_FILE}: was written again, in the bytes that it should have"
    if isinstance(log, LocalLog):
        for file in _renew_resized(log):
            yield f"{file}: was written again at its full size, with the same commits"
    else:
        yield from _mark_again(log)


def _write_identity(log: CommitLog) -> None:
    contents = encode_identity(decode_identity(log.files.read(paths.STORE_FILE), log.files.url))
    if isinstance(log, LocalLog):
        hint = open_hint(log.files, log.identity.seed, log.environment)
        with AppendLock(log.files, hint, log.environment):
            log.files.replace_log(paths.STORE_FILE, len(contents), [contents])
        return
    bucket_files(log.files).bucket.put(paths.STORE_FILE, [contents])


def _mark_again(log: CommitLog) -> Iterator[str]:
    """Write a lost mark of collected commits again, if no record refers to these commits."""
    files, state = bucket_files(log.files), log.reload()
    _, behind = unmarked(files, state)
    with suppress(CorruptionError, FileNotFoundError):  # references are then unknown
        if 0 < behind <= references_of(files, state).lowest_log_file():
            mark_collected(files, behind - 1)
            yield f"{paths.collected_mark(behind - 1)}: was written again, a checkpoint follows"


def _renew_resized(log: LocalLog) -> list[str]:
    """Rewrite log files of a wrong size whose commits are all whole."""
    hint = open_hint(log.files, log.identity.seed, log.environment)
    journal = Journal(log.files, log.identity, hint)
    if not journal.folder.resized() or not hint.valid:
        return []
    with SyncLock(log.files, log.environment), AppendLock(log.files, hint, log.environment):
        replica = Replica(log.files, journal, indexed=False)
        replica.advance(hint.mark)
        if replica.state.broken is not None or replica.state.damage or hint.sync_failed:
            return []
        found = journal.folder.resized()
        if found:
            journal.renew(min(found), replica.cursor)
        return [paths.log_file(first) for first in found]
