"""Finding out whether a log was cut off from outside: its end is then damage, not a torn tail.

A crash can't shorten a log file, because it gets its full size before its first frame. Nor can a
crash remove the last log file, which is never deleted once there was a frame. A checkpoint, and the
file `begun`, which is created before the first frame, tell that there was one.
"""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import Journal
from kmq_storage.objects.disk import Disk


def is_cut_off(disk: Disk, journal: Journal, end: Cursor) -> bool:
    """Whether missing or short files show that frames may have been lost behind `end`."""
    sizes = journal.folder.sizes()
    if not sizes:
        return (end.lsn > 0 or disk.exists(paths.BEGUN)) and not journal.folder.sizes()
    last = journal.try_locate(end).file
    return any(size < journal.folder.file_bytes for file, size in sizes.items() if file >= last)
