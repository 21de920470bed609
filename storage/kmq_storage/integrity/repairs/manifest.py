"""Repair of damaged checkpoints and pages by an older checkpoint and the log."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError, UnavailableError
from kmq_storage.integrity.repairs.pages import is_whole
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_refs
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in

#: The suffix of a damaged file that a repair sets aside.
ASIDE = ".damaged"


def repair_manifest(log: CommitLog) -> Iterator[str]:
    """Set damaged checkpoints aside if an older one and the log replace them; write a new one.

    Yields what was done, in words.
    """
    files = log.files
    found = checkpoints(files)
    whole = [root for root in found if is_whole_root(files, *root)]
    base = whole[0][0] if whole else 0
    damaged = [
        root
        for root in found
        if root not in whole and not (root[0] < base and _is_being_collected(files, *root))
    ]
    if not damaged or not _reaches_back(log, base + 1):
        return
    for root in damaged:
        file = paths.checkpoint_file(*root)
        set_aside(files, file)
        yield f"{file}: was set aside; commits after {base} say what it said"
    state = log.reload()
    if not state.damage and state.broken is None:
        yield f"checkpoint of commit {checkpoint(log).lsn} is the newest now"


def is_whole_root(files: Files, lsn: int, digest: bytes) -> bool:
    """Whether a checkpoint and all its pages are valid."""
    try:
        return all(is_whole(files, ref) for ref in read_refs(files, lsn, digest))
    except (CorruptionError, FileNotFoundError):
        return False


def _is_being_collected(files: Files, lsn: int, digest: bytes) -> bool:
    """Whether a checkpoint is gone, or misses pages and has no damaged ones.

    Collection deletes pages before the checkpoints that name them, and such a checkpoint next time.
    """
    try:
        refs = read_refs(files, lsn, digest)
    except (CorruptionError, FileNotFoundError):
        return not files.exists(paths.checkpoint_file(lsn, digest))
    there = [ref for ref in refs if files.exists(paths.page_file(ref.page_id))]
    return all(is_whole(files, ref) for ref in there)


def _reaches_back(log: CommitLog, lsn: int) -> bool:
    """Whether the log goes back to this LSN."""
    try:
        next(iter(log.commits(lsn)), None)
    except OffsetOutOfRangeError:
        return False
    except UnavailableError as error:
        if error.context.get("lsn") != lsn:
            raise  # with this LSN, it means that the commit is gone from a bucket without a mark
        return False
    except CorruptionError:
        return True  # it exists, though it is damaged; readers get an error
    return True


def set_aside(files: Files, file: str) -> None:
    """Keep the bytes of a damaged file under a name that no process reads."""
    try:
        files.publish(file + ASIDE, [brought_in(files.map(file))], sync=True)
    except FileNotFoundError:
        return
    files.remove(file)
