"""Verify: check every file of a store and report damage, without changing anything.

Each check is a generator of findings. Without `deep`, no record batch is read: names, lengths,
headers, directories, footers and the manifest must agree. With `deep`, every byte is checked, one
batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeGuard

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.integrity.checks.commit_logs import check_log
from kmq_storage.integrity.checks.manifest import check_manifest
from kmq_storage.integrity.checks.older import check_older
from kmq_storage.integrity.checks.rows import MISSING, check_partitions, still_missing
from kmq_storage.integrity.checks.slips import check_slips
from kmq_storage.integrity.checks.small_files import (
    check_clones,
    check_identity,
    check_locks,
    check_pins,
)
from kmq_storage.integrity.checks.unneeded import check_unneeded
from kmq_storage.integrity.report import Damage, Finding, Note, Report, report_of
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_refs
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.clones import clone_records
from kmq_storage.maintenance.references import References, references_of
from kmq_storage.objects.files import Files

_NESTED = "another store is in a folder of this one; its files are its own, and not checked here"


def verify(log: CommitLog, *, deep: bool = False) -> Report:
    """Check a store; other processes may read, write and maintain it meanwhile.

    UnavailableError when the store can't be read.
    """
    with translated(log.files.url), log.files.afresh():
        return _verified(log, deep=deep)


def why_closed(files: Files, error: CorruptionError) -> Report:
    """The report for a store that can't be opened because of this error."""
    with translated(files.url):
        at_all = Damage(str(error.context.get("file", paths.STORE_FILE)), reason=error.message)
        return report_of(chain([at_all], check_identity(files), check_manifest(files)))


def _verified(log: CommitLog, *, deep: bool) -> Report:
    files, state = log.files, log.reload()
    found = list(
        chain(
            check_identity(files),
            check_log(log, state, deep=deep),
            check_manifest(files),
            check_partitions(files, state, deep=deep),
            check_older(files, state, deep=deep),
            check_pins(files),
            check_clones(files),
            check_locks(files),
            check_slips(log),
        )
    )
    found = list(_lasting(log, found))
    waiting, nested = _without_nested(unreferenced(files, log.state))
    found += check_unneeded(log, waiting) if deep else ()
    found += (Note(store, _NESTED) for store in nested)
    return report_of((_as_named(files, each) for each in found), waiting)


def _without_nested(unneeded: list[str]) -> tuple[list[str], list[str]]:
    """The files that are in no store inside of this one, and the `kmq.json` of each such store."""
    nested = [file for file in unneeded if file.endswith(f"/{paths.STORE_FILE}")]
    folders = tuple(file.removesuffix(paths.STORE_FILE) for file in nested)
    return [file for file in unneeded if not file.startswith(folders)], nested


def _lasting(log: CommitLog, found: list[Finding]) -> Iterator[Finding]:
    """The findings that still hold, as maintenance may have moved records to other files."""
    state = log.reload() if any(map(_is_missing, found)) else log.state
    for finding in found:
        if not (_is_missing(finding) and not still_missing(state, finding)):
            yield finding


def _as_named(files: Files, finding: Finding) -> Finding:
    """The finding with the file's name in the place of the store."""
    return replace(finding, file=files.named(finding.file))


def _is_missing(finding: Finding) -> TypeGuard[Damage]:
    return isinstance(finding, Damage) and finding.reason == MISSING


def unreferenced(files: Files, state: StoreState) -> list[str]:
    """Files that no checkpoint, no later commit and no clone needs, and files with unknown names.

    While a checkpoint can't be read, only files with unknown names are found.
    """
    try:
        kept = _all_references(files, state)
    except (CorruptionError, FileNotFoundError):
        kept = None
    found = []
    for file in files.walk(""):
        if not file.path.startswith(paths.ID_PREFIXES):
            is_known = paths.is_named(file.path)
        else:
            file_id = paths.try_file_id(file.path)
            is_known = file_id is not None and (kept is None or kept.has(file_id))
        if not is_known:
            found.append(file.path)
    return found


def _all_references(files: Files, state: StoreState) -> References:
    kept = references_of(files, state)
    for lsn, digest in checkpoints(files):
        kept.add_pages(read_refs(files, lsn, digest))
    for _, record in clone_records(files):
        kept.add_ids(record.file_ids)
    return kept
