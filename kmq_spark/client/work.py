"""Work of the committer: sends of one topic on their way into a commit.

Rows that were sent in many calls are encoded together; what is refused is taken out, and what
is left is tried again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kmq_spark.client.doubles import Doubles
from kmq_spark.client.routing import Router, Routes, Rows, ranks, split
from kmq_spark.client.schedule import schedule_entry
from kmq_spark.client.sends import ArrowSend, RowSends, Sends
from kmq_spark.client.storable import check_storable, unstorable, why_unstorable
from kmq_spark.client.topic_arrow import rows_of_topic_arrow
from kmq_spark.client.typed_rows import rows_of_values
from kmq_spark.client.values import Extras, PlainExtras
from kmq_spark.errors import (
    ConflictError,
    InvalidRequestError,
    KmqError,
    NotFoundError,
    QueueFullError,
)
from kmq_storage.format.entries import Entry
from kmq_storage.log.binding import Unit
from kmq_storage.log.queue_rows import PRIORITY
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.log.uniqs import StoredBeforeError
from kmq_storage.names import queue_of_log

if TYPE_CHECKING:
    import numpy.typing as npt

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Numbers: TypeAlias = "npt.NDArray[np.int64]"

#: Memory of this size is still warm when the next work uses it again.
_WORK_BYTES = 4 * 1024 * 1024

#: Where the digest of a row stands among what it has more.
_UNIQ = Extras._fields.index("uniq")

Parts = Sequence[PartitionRecords]

#: A topic that was deleted meanwhile may be there anew; files that were given up, too.
TRY_AGAIN = (NotFoundError, ConflictError)


class RowWork:
    """Rows of one or several sends to one topic."""

    def __init__(self, sends: Sequence[RowSends]) -> None:
        self.topic = sends[0].topic
        self._sends = sends
        #: Where each send's rows begin among all of them, and their number at the end.
        self._starts = [0, *accumulate(len(send) for send in sends)]
        self._kept: npt.NDArray[np.intp] | None = None
        self._routes: Routes = 0
        self._places: tuple[Numbers, Numbers] | None = None
        self._bases: dict[int, int] = {}
        self.doubles = Doubles()

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition, without those that can't be stored; empty when none is left."""
        rows = self._rows(topic)
        out = self._left_out()
        self._kept = None
        if out is not None:
            self._kept = np.flatnonzero(~out)
            if not len(self._kept):
                self._routes = 0
                return []
            rows = rows.keep(~out)
        routes = router.routes(topic, rows)
        bad = unstorable(topic, rows.sizes, routes)
        if bad.any():
            self._fail(topic, rows, routes, np.flatnonzero(bad))
            return self.encode(topic, router, now)
        self._routes = routes
        return split(topic, rows, routes)

    def _rows(self, topic: Topic) -> Rows:
        sends = self._sends
        if len(sends) == 1:
            values, keys = sends[0].values, sends[0].keys
        else:
            values = list(chain.from_iterable(send.values for send in sends))
            keys = list(chain.from_iterable(send.keys for send in sends))
        extras = self._extras()
        times = np.concatenate([np.asarray(send.times, np.int64) for send in sends])
        return rows_of_values(
            topic, values, keys, times // 1000, extras=extras, refuse=self._refuse_row
        )

    def check_schedules(self, state: StoreState) -> None:
        """Refuse priorities where a queue has another order."""
        name = queue_of_log(self.topic)
        queue = None if name is None else state.queues.find(name)
        if queue is not None and queue.settings.order != "none":
            for row, extra in self._extras().items():
                schedule = Extras._make(extra).schedule
                if schedule is not None and schedule.priority != PRIORITY:
                    self._refuse_row(row, _has_an_order(queue.name, queue.settings.order))

    def more_entries(self, topic: Topic, now: int) -> tuple[Entry, ...]:
        """What is committed beside the records: when they are handed out, what they are known by.

        `now`: UTC us.
        """
        if not any(send.extras for send in self._sends):
            return ()
        kept = range(self._starts[-1]) if self._kept is None else self._kept.tolist()
        numbers = ranks(self._routes, len(kept)).tolist()
        partitions = np.broadcast_to(self._routes, len(kept)).tolist()
        places = dict(zip(kept, zip(partitions, numbers, strict=True), strict=True))
        uniqs = self.doubles.entries(topic.id, now, places)
        if queue_of_log(topic.name) is None:
            return uniqs
        return (*schedule_entry(topic.id, kept, self._extras()), *uniqs)

    def _left_out(self) -> Mask | None:
        """The rows that are not stored, or None when all are."""
        failed = self._failed()
        digests = {row: extra[_UNIQ] for row, extra in self._extras().items() if extra[_UNIQ]}
        if not digests:
            return failed
        gone = frozenset() if failed is None else frozenset(np.flatnonzero(failed).tolist())
        doubles = self.doubles.rows(digests, gone)
        if doubles and failed is None:
            failed = np.zeros(self._starts[-1], np.bool_)
        if failed is not None:
            failed[doubles] = True
        return failed

    def is_duplicate(self, row: int) -> bool:
        """Whether a row is not stored, since one like it was before."""
        return row in self.doubles

    def resolve_doubles(self, entries: Sequence[Entry]) -> None:
        """Find the first ones that are in the same commit."""
        for row in self.doubles.resolve(entries):
            self._refuse_row(
                row, ConflictError("the record that this one repeats was not stored; send it again")
            )

    def _extras(self) -> dict[int, PlainExtras]:
        if len(self._sends) == 1:
            return self._sends[0].extras
        return {
            start + row: extra
            for start, send in zip(self._starts, self._sends, strict=False)
            for row, extra in send.extras.items()
        }

    def _failed(self) -> Mask | None:
        """The rows that are out, or None while all are in."""
        if not any(send.failure or send.row_errors for send in self._sends):
            return None
        failed = np.zeros(self._starts[-1], np.bool_)
        for start, send in zip(self._starts, self._sends, strict=False):
            if send.failure:
                failed[start : start + len(send)] = True
            failed[[start + row for row in send.row_errors]] = True
        return failed

    def _fail(self, topic: Topic, rows: Rows, routes: Routes, bad: npt.NDArray[np.intp]) -> None:
        for position in bad:
            row = int(position if self._kept is None else self._kept[position])
            self._refuse_row(row, why_unstorable(topic, rows.sizes, routes, int(position)))

    def _refuse_row(self, row: int, error: KmqError) -> None:
        number = bisect_right(self._starts, row) - 1
        self._sends[number].fail_rows([row - self._starts[number]], error)

    def refuse(self, error: KmqError) -> list[RowWork]:
        """What is left to try after a refusal: nothing, or fewer rows."""
        if isinstance(error, TRY_AGAIN):
            return [self]
        if isinstance(error, StoredBeforeError):
            self.doubles.note(error)
            return [self]
        if not isinstance(error, QueueFullError):
            self.fail(error)
            return []
        if len(self._sends) > 1:
            return [RowWork([send]) for send in self._sends]
        return self._fill_up(error)

    def _fill_up(self, error: QueueFullError) -> list[RowWork]:
        """The topic is nearly full: the first records still fit, a batch doesn't."""
        kept = range(self._starts[-1]) if self._kept is None else self._kept
        room = int(error.context["room"])
        self._sends[0].fail_rows([int(row) for row in kept[room:]], error)
        return [self] if room and not self._sends[0].failure else []

    def fail(self, error: KmqError) -> None:
        """Nothing of it can be stored."""
        for send in self._sends:
            send.failure = send.failure or error

    def committed(self, first_offsets: dict[int, int]) -> None:
        """The rows of each partition stand from these offsets on; empty when nobody knows."""
        self._bases = first_offsets
        for start, send in zip(self._starts, self._sends, strict=False):
            send.placed(self, start)

    def places(self, first: int, end: int) -> tuple[list[int], list[int]]:
        """Partitions and offsets of the rows from `first` up to `end`; -1 for those that failed."""
        if self._places is None:
            self._places = self._resolved()
        partitions, offsets = self._places
        return partitions[first:end].tolist(), offsets[first:end].tolist()

    def _resolved(self) -> tuple[Numbers, Numbers]:
        """The partition and the offset of every row, from what the commit said; -1 if unknown."""
        count = self._starts[-1]
        kept = np.arange(count) if self._kept is None else self._kept
        partitions, offsets = np.full(count, -1), np.full(count, -1)
        partitions[kept] = self._routes
        if self._bases:
            bases = np.zeros(max(self._bases) + 1, np.int64)
            bases[list(self._bases)] = list(self._bases.values())
            offsets[kept] = bases[partitions[kept]] + ranks(self._routes, len(kept))
        for row in range(count) if self.doubles else ():
            if row in self.doubles:
                place = self.doubles.place(row)
                first = (partitions[place], offsets[place]) if isinstance(place, int) else place
                partitions[row], offsets[row] = (-1, -1) if first is None else first
        return partitions, offsets


class ArrowWork:
    """Arrow data of one send."""

    def __init__(self, send: ArrowSend) -> None:
        self.topic = send.topic
        self._send = send
        self._counts: dict[int, int] = {}
        self._prepared: tuple[object, list[PartitionRecords]] | None = None
        self._placed: tuple[object, Unit] | None = None

    def prepare(
        self, topic: Topic, router: Router, now: int, place: Callable[[Parts], Unit | None]
    ) -> None:
        """Encode ahead of time, in the thread of the caller: the worker then only commits.

        `place` makes a unit of it, or tells by None that this is too large to be done here.
        """
        records = self._encode(topic, router, now)
        unit = place(records)
        if unit is None:
            self._prepared = _definition(topic), records
        else:
            self._placed = _definition(topic), unit

    def take_placed(self, topic: Topic) -> Unit | None:
        """What was prepared, if the topic is still as it was then."""
        placed, self._placed = self._placed, None
        return placed[1] if placed is not None and placed[0] == _definition(topic) else None

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition; the first row that can't be stored refuses them all."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == _definition(topic):
            return prepared[1]
        return self._encode(topic, router, now)

    def _encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        found: list[PartitionRecords] = []
        self._counts = {}
        for checked in self._send.batches:
            rows = rows_of_topic_arrow(checked, topic, now, self._send.partition)
            routes = router.routes(topic, rows)
            check_storable(topic, rows.sizes, routes)
            found += split(topic, rows, routes)
        for records in found:
            count = sum(sized.batch.num_rows for sized in records.batches)
            self._counts[records.partition] = self._counts.get(records.partition, 0) + count
        return found

    def refuse(self, error: KmqError) -> list[ArrowWork]:
        """What is left to try after a refusal: all of it, or nothing."""
        if isinstance(error, TRY_AGAIN):
            return [self]
        self.fail(error)
        return []

    def fail(self, error: KmqError) -> None:
        """Nothing of it can be stored."""
        self._send.failure = error

    def committed(self, first_offsets: dict[int, int]) -> None:
        """The rows of each partition stand from these offsets on."""
        self._send.offsets = {
            partition: (first, first + self._counts[partition])
            for partition, first in sorted(first_offsets.items())
        }


def _definition(topic: Topic) -> object:
    """What an encoding depends on."""
    return topic.id, topic.partitions, topic.settings


def _has_an_order(queue: str, order: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"queue {queue} hands out records in order ({order}): a priority would break that",
        queue=queue,
        field="priority",
    )


def work_of(waiting: Sequence[Sends]) -> list[RowWork | ArrowWork]:
    """Sends as work, in their order per topic; row sends go together up to some bytes."""
    work: list[RowWork | ArrowWork] = []
    gathering: dict[str, list[RowSends]] = {}
    for send in waiting:
        rows = gathering.setdefault(send.topic, [])
        if isinstance(send, RowSends):
            rows.append(send)
        if rows and (send is not rows[-1] or sum(each.size for each in rows) > _WORK_BYTES):
            work.append(RowWork(gathering.pop(send.topic)))
        if isinstance(send, ArrowSend):
            work.append(send.work or ArrowWork(send))
    return work + [RowWork(rows) for rows in gathering.values() if rows]
