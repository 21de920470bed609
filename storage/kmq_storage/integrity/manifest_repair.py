"""Damaged checkpoints and pages: an older checkpoint and the log say all that they said."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError, UnavailableError
from kmq_storage.integrity.page_repair import is_whole
from kmq_storage.log.checkpoint import checkpoints, read_refs
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in

#: What a repair sets aside keeps its bytes under its name and this.
ASIDE = ".damaged"


def repair_manifest(log: CommitLog) -> Iterator[str]:
    """Set damaged checkpoints aside where nothing is lost by it, and write a new one.

    What was done, in words.
    """
    files = log.files
    found = checkpoints(files)
    whole = [root for root in found if is_whole_root(files, *root)]
    damaged = [root for root in found if root not in whole]
    base = whole[0][0] if whole else 0
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
    """Whether a checkpoint proves itself, and each of its pages."""
    try:
        return all(is_whole(files, ref) for ref in read_refs(files, lsn, digest))
    except (CorruptionError, FileNotFoundError):
        return False


def _reaches_back(log: CommitLog, lsn: int) -> bool:
    """Whether the log has every commit from an LSN on, or has had none yet."""
    try:
        next(iter(log.commits(lsn)), None)
    except OffsetOutOfRangeError:
        return False
    except UnavailableError as error:
        if error.context.get("lsn") != lsn:
            raise  # else it is gone from a bucket without a mark
        return False
    except CorruptionError:
        return True  # it is there, though damaged; readers are told
    return True


def set_aside(files: Files, file: str) -> None:
    """Keep the bytes of a damaged file under a name that nobody reads."""
    try:
        files.publish(file + ASIDE, [brought_in(files.map(file))], sync=True)
    except FileNotFoundError:
        return
    files.remove(file)
