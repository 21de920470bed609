"""The partitions that the last commits changed.

A reader of thousands of partitions so needs to look only at these.
"""

from __future__ import annotations

from kmq_storage.log.state.topic_state import Partition

#: How many changes are remembered. A reader that misses some looks at all its partitions, which
#: costs little per change.
_KEPT = 4_096


class Changes:
    """The changed partitions, in the order of the commits.

    One thread at a time notes changes, and any thread may read meanwhile. A change is noted after
    it was made. So a reader that reads `count` before it looks at a partition misses no change.
    """

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        #: The number of forgotten changes, and the later ones; one tuple, so it changes atomically.
        self._noted: tuple[int, list[Partition]] = (0, [])

    @property
    def count(self) -> int:
        """The number of changes so far."""
        forgotten, kept = self._noted
        return forgotten + len(kept)

    def note(self, part: Partition) -> None:
        """Note that a commit changed this partition."""
        forgotten, kept = self._noted
        kept.append(part)
        if len(kept) >= 2 * _KEPT:
            self._noted = (forgotten + _KEPT, kept[_KEPT:])

    def note_all(self) -> None:
        """Note that any partition may have changed."""
        self._noted = (self.count + 1, [])

    def since(self, count: int) -> list[Partition] | None:
        """The changes after the first `count`; None when some of them are forgotten."""
        forgotten, kept = self._noted
        return None if count < forgotten else kept[count - forgotten :]
