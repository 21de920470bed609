"""What all handles share: they are context managers, and belong to one process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, SupportsIndex

from kmq_spark.errors import IllegalStateError

#: Whether a call that waits is to end.
Stopped = Callable[[], bool]


def stays_here(what: str) -> IllegalStateError:
    """Return the error for a handle, or a part of one, that is pickled or copied."""
    return IllegalStateError(
        f"a {what} can't be pickled or copied: open the store where it is used, by its URL"
    )


class StaysHere:
    """What belongs to its process, and can't be pickled or copied."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise stays_here(type(self).__name__)


class Resource(StaysHere):
    """A handle that its user closes."""

    def _check_open(self) -> None:
        """Raise ClosedError once it was closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the handle; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()
