"""Damage in the records of one partition, which keeps the others from nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from kmq_storage.errors import CorruptionError, IllegalStateError
from kmq_storage.log.moving import missing_file

#: What the work on one partition is done in; `nullcontext`: its damage ends all.
Apart: TypeAlias = Callable[[], AbstractContextManager[None]]


class Damaged:
    """The first damage that was met; it is told when all else is done."""

    def __init__(self) -> None:
        self._first: CorruptionError | IllegalStateError | None = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Go on with other partitions when this one is damaged; what is missing may have moved."""
        try:
            yield
        except IllegalStateError as error:
            self._first = self._first or error
        except CorruptionError as error:
            if missing_file(error) is not None:
                raise
            self._first = self._first or error

    def tell(self) -> None:
        """CorruptionError if there was damage, IllegalStateError where something can't be done."""
        if self._first is not None:
            raise self._first
