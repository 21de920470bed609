"""What a pull consumer has read of a partition, and what of it is acknowledged."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter


@dataclass(slots=True)
class Progress:
    """How far a place was read, and which of its messages are not acknowledged."""

    end: int
    #: The offsets of those messages, in runs: most consumers never acknowledge any.
    open: list[range] = field(default_factory=list)
    #: What is acknowledged and not read yet: an earlier consumer had it.
    ahead: set[int] = field(default_factory=set)

    def read(self, offsets: list[int], end: int) -> None:
        """Note that all before `end` was read, and that these offsets are messages."""
        if self.ahead:
            offsets = [each for each in offsets if each not in self.ahead]
            self.ahead = {each for each in self.ahead if each >= end}
        if offsets and offsets[-1] - offsets[0] + 1 == len(offsets):
            runs = [range(offsets[0], offsets[-1] + 1)]
        else:
            runs = [range(each, each + 1) for each in offsets]
        for run in runs:
            if self.open and self.open[-1].stop == run.start:
                run = range(self.open.pop().start, run.stop)
            self.open.append(run)
        self.end = end

    def finish(self, offset: int) -> None:
        """Take a message for acknowledged; nothing changes when it is already."""
        if offset >= self.end:
            self.ahead.add(offset)
        place = bisect_right(self.open, offset, key=attrgetter("start")) - 1
        if place >= 0 and offset in (run := self.open[place]):
            parts = range(run.start, offset), range(offset + 1, run.stop)
            self.open[place : place + 1] = filter(None, parts)

    def first_open(self, *, without: int = -1) -> int:
        """The first offset but this one that is not acknowledged; else the next one to read."""
        return next((at for run in self.open for at in run if at != without), self.end)
