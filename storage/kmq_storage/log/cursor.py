"""The place in a log where reading or writing goes on; on a disk and in a bucket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two frames: the last frame that was read, and where the next one begins."""

    #: The LSN of the last frame; 0 before the first.
    lsn: int = 0
    #: The chain value of the last frame; None when it is unknown, so it is not compared.
    chain: int | None = 0
    #: The time of the last frame, UTC us.
    time: int = 0
    #: The log file that the next frame is in, as the LSN of its first frame.
    file: int = 1
    position: int = 0

    def next_time(self, now: int) -> int:
        """The time (UTC us) of the next commit: `now`, or just after the last commit if later."""
        return max(now, self.time + 1)
