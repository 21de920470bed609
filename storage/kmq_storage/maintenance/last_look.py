"""When it pays to look for files that can go, though nothing was written since the last look.

What was replaced may go once the checkpoint behind it is older than the grace time. In a bucket,
commits go an hour after they were marked. Files that no commit named go after a day.
"""

from __future__ import annotations

from kmq_storage import limits

#: A look reads all commits of the grace time. Where many are written, as by groups that commit
#: their offsets, it comes at most this many times in that time.
_LOOKS = 10


class LastLook:
    """What a process has looked for, so that a store in which nothing happens is left alone."""

    def __init__(self) -> None:
        #: Files that were replaced up to this LSN could go; and when to look again, UTC us.
        self._floor = self._again = 0
        #: When the last look was.
        self._at = 0

    def is_recent(self, now: int, grace: int) -> bool:
        """Whether the last look was just now, as measured by the grace time (all in us)."""
        return 0 <= now - self._at < grace // _LOOKS

    def is_due(self, floor: int, now: int) -> bool:
        """Whether files may go by now: those replaced up to the LSN `floor`, or old ones."""
        return floor > self._floor or (floor > 0 and now >= self._again)

    def note(self, floor: int, now: int, *, is_remote: bool) -> None:
        """Note a collection, which can mark commits of a bucket whenever the floor has risen."""
        is_marked = is_remote and floor > self._floor
        wait = 2 * limits.COLLECTED_LOG_GRACE if is_marked else limits.ORPHAN_AGE
        self._floor, self._again, self._at = floor, now + round(wait * 1e6), now
