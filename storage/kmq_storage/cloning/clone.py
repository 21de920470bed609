"""Cloning: making an independent store at another place that shares files with its source.

Only records in the commit log and the manifest are copied. Segments and staged files are shared: on
a disk by hard links, and in a bucket by reading them where they are (`sharing`). `kmq.json` is
written last; there is no clone before it. See docs/design/clone.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kmq_storage import limits, paths
from kmq_storage.cloning.sharing import Sharing, sharing_of
from kmq_storage.cutting import cut
from kmq_storage.errors import AlreadyExistsError, UnavailableError
from kmq_storage.format.identity import Identity, encode_identity
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import LOG, PageRef, decode_refs
from kmq_storage.log.checkpoints.checkpoint import publish_root, write_pages
from kmq_storage.log.checkpoints.paging import rows_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.moving import trying_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.store_files import (
    check_no_other_use,
    check_possible,
    is_missing,
    no_folder,
)
from kmq_storage.maintenance.checkpointing import check_undamaged
from kmq_storage.maintenance.reports import CloneReport
from kmq_storage.maintenance.seal import plan_seal, together
from kmq_storage.maintenance.segment_files import write_segments
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import held_if_free
from kmq_storage.queues.slips import tell_noted

#: Folders that are emptied before a clone is made, as an unfinished one may have left files there.
_LEFT_OVER = (paths.CHECKPOINT_FOLDER, paths.PAGE_FOLDER, paths.LOG_FOLDER, paths.COLLECTED_FOLDER)


def make_clone(
    source: CommitLog, target: Disk | BucketFiles, *, read_only: bool = False
) -> CloneReport:
    """Make a clone of the newest state of a store.

    AlreadyExistsError when there is already a store in this place, InvalidRequestError when the two
    places can't share files.
    """
    sharing = sharing_of(source, target)
    with _translated(target):
        _check_free(target)  # before a lock file is created there
    with _translated(target), _alone(target):
        _begin(target, sharing)
        with sharing.keeping():
            built = trying_again(lambda: _build(source, target, sharing))
            identity = Identity(
                source.environment.new_uuid(),
                source.identity.log_file_bytes,
                source.identity.bucket,
                sharing.origins,
                read_only,
            )
            if built.lsn:
                sharing.start_log(identity, built.lsn)
            sharing.register(identity, built.lsn, built.shared)
            if not target.publish(paths.STORE_FILE, [encode_identity(identity)], sync=True):
                raise _exists(target)
        target.remove(paths.CLONING_FILE)
    return built.report()


@contextmanager
def _translated(target: Disk | BucketFiles) -> Iterator[None]:
    """A block whose OSErrors become UnavailableError; a missing permission is named."""
    with translated(target.url):
        try:
            yield
        except PermissionError as error:
            raise UnavailableError(
                f"no clone can be made at {target.url}: no permission for {error.filename} "
                f"({error.strerror}); cloning reads all of the source and writes at the target",
                url=target.url,
            ) from error


@contextmanager
def _alone(target: Disk | BucketFiles) -> Iterator[None]:
    lock = target.open_lock(paths.CLONE_LOCK)
    with held_if_free(lock) as alone:
        if not alone:
            raise UnavailableError(
                f"{lock.holder()} is making a clone in {target.url}; try again when it is done",
                url=target.url,
            )
        yield


def _begin(target: Disk | BucketFiles, sharing: Sharing) -> None:
    """Mark the place as that of an unfinished clone, unless it is marked already."""
    _check_no_store(target)  # of a process that died just after it finished the clone
    if not target.exists(paths.CLONING_FILE):
        _check_free(target)
        sharing.begin()
        _check_no_store(target)  # created meanwhile


def _check_no_store(target: Disk | BucketFiles) -> None:
    """AlreadyExistsError where a store is, which is then no unfinished clone."""
    if target.exists(paths.STORE_FILE):
        target.remove(paths.CLONING_FILE)
        raise _exists(target)


def _check_free(target: Disk | BucketFiles) -> None:
    """InvalidRequestError when there are other files, as leftover folders will be emptied."""
    try:
        if not target.exists(paths.CLONING_FILE) and is_missing(target):
            check_no_other_use(target, _LEFT_OVER)
    except NotADirectoryError as error:
        raise no_folder(target) from error
    except OSError as error:
        check_possible(target, error)
        raise


def _exists(target: Disk | BucketFiles) -> AlreadyExistsError:
    return AlreadyExistsError(f"Store[{target.url}] exists already.", url=target.url)


@dataclass(frozen=True, slots=True)
class _Built:
    lsn: int
    shared: tuple[bytes, ...]
    copied: tuple[SegmentEntry, ...]

    def report(self) -> CloneReport:
        """The report for users."""
        rows = sum(entry.rows for entry in self.copied)
        return CloneReport(
            self.lsn, len(self.shared), rows, sum(entry.length for entry in self.copied)
        )


def _build(source: CommitLog, target: Disk | BucketFiles, sharing: Sharing) -> _Built:
    """Make all but the identity; CorruptionError with `missing` when a file moved meanwhile."""
    for folder in _LEFT_OVER:
        target.remove(*(file.path for file in list(target.walk(folder))))
    state, cursor = source.snapshot()
    check_undamaged(state)
    if not state.lsn:
        return _Built(0, (), ())
    for queue in state.queues:  # slips are not copied
        tell_noted(source.files, queue)
    copied = tuple(_copy_unsealed(source, target, state))
    here = Cursor(state.lsn, cursor.chain, cursor.time, state.lsn + 1, 0)
    root, _ = write_pages(target, state, here, source.environment.new_uuid)
    refs, *_ = decode_refs(root)
    _copy_pages(source, target, state, refs)
    shared = _shared_files(Manifest(target, refs), {entry.file_id for entry in copied})
    sharing.share(shared.values())
    publish_root(target, state.lsn, root, began=target.now())
    return _Built(state.lsn, tuple(shared), copied)


def _copy_unsealed(
    source: CommitLog, target: Disk | BucketFiles, state: StoreState
) -> Iterator[SegmentEntry]:
    """Write records in the commit log into own segments of the clone, and update the state."""
    reader, new_uuid = ChunkReader(source.files), source.environment.new_uuid
    for group in together(list(plan_seal(state, staged=False))):
        new = [(new_uuid().bytes, each, each.slices(reader)) for each in group]
        for entry in write_segments(target, new):
            state.apply(state.lsn, 0, [entry])
            yield entry


def _copy_pages(
    source: CommitLog, target: Disk | BucketFiles, state: StoreState, refs: list[PageRef]
) -> None:
    """Copy the unchanged pages, since a clone does not share its manifest."""
    assert state.manifest is not None, "a reader's state has a manifest"
    unchanged = {ref.page_id for ref in state.manifest.refs}
    files = [paths.page_file(ref.page_id) for ref in refs if ref.page_id in unchanged]
    for some in cut(files, lambda _: 1, limits.STAGED_TOGETHER):
        target.stage_together([(file, [source.files.map(file)]) for file in some])


def _shared_files(manifest: Manifest, own: set[bytes]) -> dict[bytes, str]:
    """The files, by id, that a manifest names, except those that the clone wrote itself."""
    files = {}
    for ref in manifest.refs:
        for key, row in rows_of(manifest, ref):
            assert row.kind != LOG, "nothing of a clone is in the log of its source"
            if row.file not in own:
                files[row.file] = row.path(key)
    return files
