"""Isolation of damage: maintenance goes on with other partitions when one is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from kmq_storage.errors import CorruptionError, IllegalStateError
from kmq_storage.log.moving import missing_file

#: Makes the block for the work on one partition. With `nullcontext`, damage ends all work.
Apart: TypeAlias = Callable[[], AbstractContextManager[None]]


class Damaged:
    """Keeps the first damage that was met, to raise it when all other work is done."""

    def __init__(self) -> None:
        self._first: CorruptionError | IllegalStateError | None = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A block for the work on one partition, which ends at damage without an error.

        A missing file is still an error: its records may have moved, and the work is tried again.
        """
        try:
            yield
        except IllegalStateError as error:
            self._first = self._first or error
        except CorruptionError as error:
            if missing_file(error) is not None:
                raise
            self._first = self._first or error

    def tell(self) -> None:
        """Raise the first error that was kept, if any."""
        if self._first is not None:
            raise self._first
