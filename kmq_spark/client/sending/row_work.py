"""Rows that were sent in many calls, encoded together; what is refused is taken out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from kmq_spark.client.encoding.routing import Router, Routes, Rows, ranks, split
from kmq_spark.client.encoding.storable import unstorable, why_unstorable
from kmq_spark.client.encoding.waiting_extras import WaitingExtras, plain_among
from kmq_spark.client.records.values import Extras
from kmq_spark.client.sending.doubles import Doubles
from kmq_spark.client.sending.schedule import schedule_entry
from kmq_spark.client.sending.sends import RowSends
from kmq_spark.client.sending.work import TRY_AGAIN, Means, OldStateError
from kmq_spark.client.typed.rows import rows_of_values
from kmq_spark.errors import ConflictError, InvalidRequestError, KmqError, QueueFullError
from kmq_storage.format.entries import Entry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.binding.uniq_binding import StoredBeforeError
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state.queues.rows import PRIORITY
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log

if TYPE_CHECKING:
    import numpy.typing as npt

    from kmq_storage.arrays import Mask, Numbers

#: Gets the digest from the extras of a row.
_uniq = itemgetter(Extras._fields.index("uniq"))


class RowWork:
    """Rows of one or several sends to one topic."""

    def __init__(self, sends: Sequence[RowSends]) -> None:
        self.topic = sends[0].topic
        self._sends = sends
        #: Where the rows of each send begin, and the number of all rows at the end.
        self._starts = [0, *accumulate(len(send) for send in sends)]
        self._kept: npt.NDArray[np.intp] | None = None
        self._routes: Routes = 0
        self._places: tuple[Numbers, Numbers] | None = None
        self._bases: dict[int, int] = {}
        #: Extras by row; the sends don't change any more.
        self._extras: Mapping[int, WaitingExtras] = sends[0].extras
        if len(sends) > 1:
            self._extras = {
                start + row: extras
                for start, send in zip(self._starts, sends, strict=False)
                for row, extras in send.extras.items()
            }
        #: Those of the extras that aren't packed.
        has_plain = any(send.has_plain for send in sends)
        self._plain = plain_among(self._extras) if has_plain else {}
        self.doubles = Doubles()
        self._double_times: Mapping[int, int] | None = None
        self._refuses = True
        self.topic_id = b""

    def unit(self, state: StoreState, means: Means, room: int) -> Unit:
        """Return a unit of the rows that can be stored, with what is committed beside them."""
        topic, now = state.topic(self.topic), means.now_us()
        self.topic_id, self._stored_times = topic.id, means.stored_times
        self._refuses = means.refuses
        self._check_schedules(state)
        placed = means.place(self.encode(topic, means.router), room)
        more = self._more_entries(topic, now) if placed.entries else ()
        return replace(placed, entries=placed.entries + more) if more else placed

    def encode(self, topic: Topic, router: Router) -> list[PartitionRecords]:
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
        bad = unstorable(topic, rows, routes)
        if bad.any():
            self._fail(topic, rows, routes, np.flatnonzero(bad))
            return self.encode(topic, router)
        self._routes = routes
        return split(topic, rows, routes)

    def _rows(self, topic: Topic) -> Rows:
        sends = self._sends
        if len(sends) == 1:
            values, keys = sends[0].values, sends[0].keys
        else:
            values = list(chain.from_iterable(send.values for send in sends))
            keys = list(chain.from_iterable(send.keys for send in sends))
        times = np.concatenate([np.asarray(send.times, np.int64) for send in sends])
        return rows_of_values(
            topic, values, keys, times // 1000, extras=self._extras, refuse=self._refuse_row
        )

    def _check_schedules(self, state: StoreState) -> None:
        """Refuse priorities where a queue has another order."""
        name = queue_of_log(self.topic)
        queue = None if name is None else state.queues.find(name)
        if queue is not None and queue.settings.order != "none":
            for row, extra in self._plain.items():
                schedule = Extras._make(extra).schedule
                if schedule is not None and schedule.priority != PRIORITY:
                    self._refuse_row(row, _has_an_order(queue.name, queue.settings.order))

    def _more_entries(self, topic: Topic, now: int) -> tuple[Entry, ...]:
        """Return what is committed beside the records: their schedules, and their `uniq`.

        `now`: UTC us.
        """
        if not self._plain:
            return ()
        kept = range(self._starts[-1]) if self._kept is None else self._kept.tolist()
        uniqs = self._uniqs(topic, kept, now) if self.doubles.have_digests else ()
        if queue_of_log(topic.name) is None:
            return uniqs
        return (*schedule_entry(topic.id, kept, self._plain), *uniqs)

    def _uniqs(self, topic: Topic, kept: Sequence[int], now: int) -> tuple[Entry, ...]:
        numbers = ranks(self._routes, len(kept)).tolist()
        partitions = np.broadcast_to(self._routes, len(kept)).tolist()
        places = dict(zip(kept, zip(partitions, numbers, strict=True), strict=True))
        return self.doubles.entries(topic.id, now, places)

    def _left_out(self) -> Mask | None:
        """The rows that are not stored, or None when all are."""
        failed = self._failed()
        if not any(map(_uniq, self._plain.values())):
            return failed
        digests = {row: _uniq(extra) for row, extra in self._plain.items() if _uniq(extra)}
        gone = frozenset() if failed is None else frozenset(np.flatnonzero(failed).tolist())
        doubles = self.doubles.rows(digests, gone)
        if doubles and failed is None:
            failed = np.zeros(self._starts[-1], np.bool_)
        if failed is not None:
            failed[doubles] = True
        return failed

    def duplicates(self, first: int, end: int) -> Iterable[bool]:
        """Tell which of the rows are not stored, since a record with their `uniq` was before."""
        if not self.doubles:
            return repeat(False, end - first)
        return (row in self.doubles for row in range(first, end))

    def times(self, first: int, sent: list[int]) -> list[int]:
        """Return the timestamps of rows from `first` on: as `sent`, or as stored for duplicates."""
        if not self.doubles:
            return sent
        if self._double_times is None:
            self._double_times = self._read_double_times()
        return [self._double_times.get(first + n, time) for n, time in enumerate(sent)]

    def _read_double_times(self) -> Mapping[int, int]:
        partitions, offsets = self.places(0, self._starts[-1])
        places = {
            row: (partitions[row], offsets[row])
            for row in range(self._starts[-1])
            if row in self.doubles and offsets[row] >= 0
        }
        found = self._stored_times(self.topic_id, places.values())
        return {row: found[place] for row, place in places.items() if place in found}

    def _resolve_doubles(self, entries: Sequence[Entry]) -> None:
        """Find first records that are in the same commit; refuse rows whose first record is not."""
        for row in self.doubles.resolve(entries):
            self._fail_row(
                row,
                ConflictError(
                    "the first record with this uniq was not stored; send this one again"
                ),
            )

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
            self._refuse_row(row, why_unstorable(topic, rows, routes, int(position)))

    def _refuse_row(self, row: int, error: KmqError) -> None:
        if not self._refuses:
            raise OldStateError
        self._fail_row(row, error)

    def _fail_row(self, row: int, error: KmqError) -> None:
        number = bisect_right(self._starts, row) - 1
        self._sends[number].fail_rows([row - self._starts[number]], error)

    def refuse(self, error: KmqError) -> list[RowWork]:
        """Return what is left to try after a refusal: nothing, or fewer rows."""
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
        """Fill a topic that is nearly full: its first records still fit, a batch doesn't."""
        kept = range(self._starts[-1]) if self._kept is None else self._kept
        room = int(error.context["room"])
        self._sends[0].fail_rows([int(row) for row in kept[room:]], error)
        return [self] if room and not self._sends[0].failure else []

    def fail(self, error: KmqError) -> None:
        """Fail all sends: nothing of them can be stored."""
        for send in self._sends:
            send.failure = send.failure or error

    def let_go(self) -> None:
        """Drop what only encoding needs: the rows are in files, or committed."""
        self._extras, self._plain = {}, {}

    def committed(
        self, first_offsets: dict[int, int], entries: Sequence[Entry] | None = None
    ) -> None:
        """Note the first offset that the rows got in each partition; empty: unknown."""
        if self.doubles and entries is not None:
            self._resolve_doubles(entries)
        self.let_go()  # futures that are kept must not keep it
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


def _has_an_order(queue: str, order: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"queue {queue} hands out records in order ({order}): a priority would break that",
        queue=queue,
        field="priority",
    )
