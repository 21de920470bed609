"""Translation of errors of a disk or bucket, and of damage, into kmq's errors."""

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
    """IllegalStateError when the store was opened read-only or is a read-only clone."""
    if files.read_only:
        raise IllegalStateError(
            f"store {files.url} was opened read-only, or cloned so; open it for writing, or clone "
            "it without read_only",
            url=files.url,
        )


def is_of_the_disk(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error is a failure of a disk or bucket; only these are translated.

    Two other kinds of OSError are not: kmq's own timeouts, and a bare TimeoutError, which the
    handler of an alarm signal often raises.
    """
    alarm = type(error) is TimeoutError and error.errno is None
    return isinstance(error, OSError) and not isinstance(error, KmqError) and not alarm


def unavailable(error: OSError, url: str) -> UnavailableError:
    """The error for a failed read or write; what was to be written is not stored.

    The traceback's frames are cleared, so that an error kept by a future keeps no file open.
    """
    clear_frames(error.__traceback__)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnavailableError(
            f"the disk of store {url} is full; what was being written is not stored, free space "
            "and try again",
            url=url,
            errno=error.errno,
        )
    return UnavailableError(
        f"store {url} can't be read or written: {error}{_way_out(error)}",
        url=url,
        errno=error.errno,
    )


def _way_out(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            "; who writes must be allowed to change all files of the store, with read_only=True it "
            "is enough to be allowed to read"
        )
    if error.errno == errno.EMFILE:
        return "; close files of this process, or let it have more of them (ulimit -n)"
    return ""


def broken_end(damage: LogDamage) -> CorruptionError:
    """The error for damage at the end of the log: the next offsets are unknown."""
    return CorruptionError(
        f"commit {damage.first_lsn} in {damage.file} is damaged ({damage.reason}); nothing is "
        "written behind it: put it back from a copy, or give it up by `kmq repair --drop-damaged`",
        file=damage.file,
        lsn=damage.first_lsn,
    )


def lost_commit(url: str, lsn: int) -> UnavailableError:
    """The error for a written commit that is certainly lost."""
    return UnavailableError(
        f"the disk of store {url} lost commit {lsn} when a sync failed; it is not stored, send "
        "again",
        url=url,
        lsn=lsn,
    )


def unknown_commit(url: str, lsn: int) -> CommitOutcomeUnknownError:
    """The error for a written commit that may be lost."""
    return CommitOutcomeUnknownError(
        f"a failed sync changed the log of store {url}; commit {lsn} may be lost", lsn=lsn
    )


def rewriting_goes_on(url: str) -> UnavailableError:
    """The error for apparent damage while frames are rewritten after a failed sync."""
    return UnavailableError(
        f"a sync of store {url} failed, and commits that were not on disk are written again; "
        "nothing was written, try again",
        url=url,
    )


@dataclass(frozen=True, slots=True)
class translated:  # noqa: N801 - used like contextlib's
    """A block whose OSErrors become UnavailableError."""

    url: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and is_of_the_disk(error):
            raise unavailable(error, self.url) from error


def collected(url: str, lsn: int, first: int) -> OffsetOutOfRangeError:
    """The error for a commit that was collected."""
    return OffsetOutOfRangeError(
        f"commit {lsn} of store {url} was collected; the log begins at commit {first}",
        lsn=lsn,
        first=first,
    )


def damaged_commit(file: str, lsn: int, reason: str) -> CorruptionError:
    """The error for a commit that can't be read."""
    return CorruptionError(
        f"commit {lsn} in {file} is damaged ({reason}); put the file back from a copy, or repair "
        "the store",
        file=file,
        lsn=lsn,
    )
