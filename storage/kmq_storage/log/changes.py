"""Which partitions the last commits changed, so that who reads thousands looks at those alone."""

from __future__ import annotations

from kmq_storage.log.topic_state import Partition

#: How many are remembered: who comes later looks at all of its own, which then costs little each.
_KEPT = 4_096


class Changes:
    """The partitions that commits changed, in their order.

    One thread at a time notes; any may look meanwhile. A change is noted behind it, so who read
    `count` before looking at a partition misses none.
    """

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        #: How many are forgotten, and those that came later; one value, for other threads.
        self._noted: tuple[int, list[Partition]] = (0, [])

    @property
    def count(self) -> int:
        """How many there were so far."""
        forgotten, kept = self._noted
        return forgotten + len(kept)

    def note(self, part: Partition) -> None:
        """A commit changed this partition."""
        forgotten, kept = self._noted
        kept.append(part)
        if len(kept) >= 2 * _KEPT:
            self._noted = (forgotten + _KEPT, kept[_KEPT:])

    def note_all(self) -> None:
        """Any partition may have changed."""
        self._noted = (self.count + 1, [])

    def since(self, count: int) -> list[Partition] | None:
        """Those behind the first so many; None when these are not all remembered."""
        forgotten, kept = self._noted
        return None if count < forgotten else kept[count - forgotten :]
