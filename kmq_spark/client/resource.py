"""What handles have in common: entered by `with` while they are open, and of one process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, SupportsIndex

from kmq_spark.errors import IllegalStateError

#: Whether a call that waits is to end.
Stopped = Callable[[], bool]


def stays_here(what: str) -> IllegalStateError:
    """What is raised when somebody pickles or copies a handle, or what hangs on one."""
    return IllegalStateError(
        f"a {what} can't be pickled or copied: open the store where it is used, by its URL"
    )


class Resource:
    """A handle that its user closes."""

    def _check_open(self) -> None:
        """ClosedError once it was closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of all that it has; again is no error."""
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

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise stays_here(type(self).__name__)
