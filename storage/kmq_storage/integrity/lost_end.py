"""Commits at the end of a bucket's log that are gone: files tell of who knew them, as do pins.

Nothing else does. On a disk what is not on it yet may be gone with the power, files and all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kmq_storage import paths
from kmq_storage.format.file_ids import begun_at
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.pins import pins
from kmq_storage.model import LogDamage
from kmq_storage.objects.files import Files


def known_lsn(files: Files) -> int:
    """The highest LSN known to who began a file with records or a page, or keeps its state."""
    return max(chain(_begun(files), _kept(files)), default=0)


def _begun(files: Files) -> Iterator[int]:
    found = chain.from_iterable(map(files.walk, paths.ID_FOLDERS))
    ids = (paths.try_file_id(file.path) for file in found)
    return (begun_at(file_id) for file_id in ids if file_id is not None)


def _kept(files: Files) -> Iterator[int]:
    return (pin.lsn for _, pin in pins(files) if pin is not None)


def lost_end(log: CommitLog) -> LogDamage | None:
    """The commits behind the last one in a bucket that there must have been."""
    known = known_lsn(log.files)
    last = log.refresh().lsn  # after the look: who wrote these files may have written commits, too
    if known <= last:
        return None
    reason = "objects are missing; files were made by who knew them"
    return LogDamage(paths.commit_object(last + 1), reason, last + 1, known)
