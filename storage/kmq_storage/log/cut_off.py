"""Whether a log was cut off by somebody else: then its end is damage, no torn tail.

A crash leaves every log file at its full size, since it has that before it has a frame; and from
the first frame on there is a log file, since the last one is never removed. That there was one is
known from a checkpoint, and from the file `begun`, which is made before the first frame.
"""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.log.journal import Cursor, Journal
from kmq_storage.objects.disk import Disk


def is_cut_off(disk: Disk, journal: Journal, end: Cursor) -> bool:
    """Whether files prove that there may have been more behind the place where frames end."""
    sizes = journal.folder.sizes()
    if not sizes:
        return (end.lsn > 0 or disk.exists(paths.BEGUN)) and not journal.folder.sizes()
    last = journal.try_locate(end).file
    return any(size < journal.folder.file_bytes for file, size in sizes.items() if file >= last)
