"""Work of the committer: sends of one topic on their way into a commit.

There are three ways, each with a module of its own: a few plain rows (`few_rows`), rows that were
sent in many calls (`row_work`), and Arrow data (`arrow_work`). The committer knows only this one:
it asks for a unit, and tells what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kmq_spark.client.encoding.routing import Router
from kmq_spark.errors import ConflictError, KmqError, NotFoundError
from kmq_storage.format.entries import Entry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state.store_state import StoreState

#: Errors after which an attempt may succeed: a deleted topic was made again, files given up.
TRY_AGAIN = (NotFoundError, ConflictError)


class OldStateError(Exception):
    """Something doesn't fit by a state that is not the newest; nothing was refused."""


@dataclass(frozen=True, slots=True)
class Means:
    """What work is encoded with."""

    router: Router
    #: Places record batches: inside the commit up to this many bytes, else in files.
    place: Callable[[Sequence[PartitionRecords], int], Unit]
    #: UTC microseconds.
    now_us: Callable[[], int]
    #: The timestamps of records of a topic, by partition and offset, as far as they can be read.
    stored_times: Callable[[bytes, Iterable[tuple[int, int]]], Mapping[tuple[int, int], int]]
    #: Whether what doesn't fit is refused; else OldStateError is raised.
    refuses: bool = True


class Work(Protocol):
    """Sends of one topic; what is refused is taken out, and what is left is tried again."""

    topic: str

    def unit(self, state: StoreState, means: Means, room: int) -> Unit:
        """Return a unit of what can be stored in `room` bytes of the commit; perhaps empty.

        KmqError when all of it fails alike, OldStateError when some does and `means` don't refuse.
        """

    def refuse(self, error: KmqError) -> Sequence[Work]:
        """Return what is left to try after the log refused its unit."""

    def fail(self, error: KmqError) -> None:
        """Fail all sends: nothing of them can be stored."""

    def let_go(self) -> None:
        """Drop what only encoding needs: its unit is in files."""

    def committed(
        self, first_offsets: dict[int, int], entries: Sequence[Entry] | None = None
    ) -> None:
        """Note the first offset that the rows got in each partition; empty: unknown.

        `entries`: all of its commit, None when that was collected.
        """
