"""Missing commits at the end of a bucket's log, found by files and pins whose writers knew them.

Nothing else tells of them. On a disk, this proves nothing: a power failure may lose commits that
were not synced yet, although files that were begun after them exist.
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
    """The highest LSN that the writer of any file or pin knew."""
    return max(chain(_begun(files), _kept(files)), default=0)


def _begun(files: Files) -> Iterator[int]:
    found = chain.from_iterable(map(files.walk, paths.ID_FOLDERS))
    ids = (paths.try_file_id(file.path) for file in found)
    return (begun_at(file_id) for file_id in ids if file_id is not None)


def _kept(files: Files) -> Iterator[int]:
    return (pin.lsn for _, pin in pins(files) if pin is not None)


def lost_end(log: CommitLog) -> LogDamage | None:
    """The commits behind the last one in a bucket that must have existed, or None."""
    known = known_lsn(log.files)
    last = log.refresh().lsn  # read afterwards, as writers of these files may commit meanwhile
    if known <= last:
        return None
    reason = "objects are missing that other files were made after"
    return LogDamage(paths.commit_object(last + 1), reason, last + 1, known)
