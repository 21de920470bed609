"""From the errors of disks to those of kmq: in one place, whatever was being done."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from traceback import clear_frames
from typing import TypeGuard

from kmq_storage.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    IllegalStateError,
    KmqError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage.model import LogDamage
from kmq_storage.objects.files import Files


def check_writable(files: Files) -> None:
    """IllegalStateError for a store that was opened read-only, or is a read-only clone."""
    if files.read_only:
        raise IllegalStateError(
            f"store {files.url} was opened read-only, or cloned so; open it for writing, or clone "
            "it without read_only",
            url=files.url,
        )


def is_of_the_disk(error: BaseException) -> TypeGuard[OSError]:
    """Whether a disk or a bucket failed; other errors are nobody's to translate.

    A timeout of kmq is an OSError too, and so is what the handler of an alarm likes to raise.
    """
    alarm = type(error) is TimeoutError and error.errno is None
    return isinstance(error, OSError) and not isinstance(error, KmqError) and not alarm


def unavailable(error: OSError, url: str) -> UnavailableError:
    """What a failed read or write means for a commit: nothing of it is stored.

    Whoever keeps the error, as a future does, keeps no file open by the frames it came through.
    """
    clear_frames(error.__traceback__)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnavailableError(
            f"the disk of store {url} is full; nothing of this commit is stored, free space and "
            "send again",
            url=url,
            errno=error.errno,
        )
    may_not = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    way_out = "; with read_only=True it is enough to be allowed to read" if may_not else ""
    return UnavailableError(
        f"store {url} can't be read or written: {error}{way_out}", url=url, errno=error.errno
    )


def broken_end(damage: LogDamage) -> CorruptionError:
    """Commits that can't be read, and none behind them: nobody knows the next offsets."""
    return CorruptionError(
        f"commit {damage.first_lsn} in {damage.file} is damaged ({damage.reason}); nothing is "
        "written behind it: put it back from a copy, or give it up by `kmq repair --drop-damaged`",
        file=damage.file,
        lsn=damage.first_lsn,
    )


def lost_commit(url: str, lsn: int) -> UnavailableError:
    """A written commit is gone for certain."""
    return UnavailableError(
        f"the disk of store {url} lost commit {lsn} when a sync failed; it is not stored, send "
        "again",
        url=url,
        lsn=lsn,
    )


def unknown_commit(url: str, lsn: int) -> CommitOutcomeUnknownError:
    """A written commit may be gone."""
    return CommitOutcomeUnknownError(
        f"a failed sync changed the log of store {url}; commit {lsn} may be lost", lsn=lsn
    )


def rewriting_goes_on(url: str) -> UnavailableError:
    """What looks like damage is being repaired."""
    return UnavailableError(
        f"a sync of store {url} failed, and commits that were not on disk are written again; "
        "nothing was written, try again",
        url=url,
    )


@dataclass(frozen=True, slots=True)
class translated:  # noqa: N801 - used like contextlib's
    """Raise UnavailableError for an OSError of the block."""

    url: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and is_of_the_disk(error):
            raise unavailable(error, self.url) from error


def collected(url: str, lsn: int, first: int) -> OffsetOutOfRangeError:
    """The error for a commit that the log doesn't reach back to."""
    return OffsetOutOfRangeError(
        f"commit {lsn} of store {url} was collected; the log begins at commit {first}",
        lsn=lsn,
        first=first,
    )


def damaged_commit(file: str, lsn: int, reason: str) -> CorruptionError:
    """A commit that can't be read where the next one should stand."""
    return CorruptionError(
        f"commit {lsn} in {file} is damaged ({reason}); put the file back from a copy, or repair "
        "the store",
        file=file,
        lsn=lsn,
    )
