"""Taking records for a call of a consumer: those in hand, then fetched ones, waiting if need be.

Not thread-safe, except where stated: the consumer lets one thread in at a time.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from kmq_spark.client.consuming.assignment import Assignment
from kmq_spark.client.consuming.hand import ANY, Hand, Taken
from kmq_spark.client.consuming.subscription import TopicPartition
from kmq_spark.client.consuming.uncommitted import Giving
from kmq_spark.client.handles.resource import Stopped
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.record_values import records_of
from kmq_spark.client.records.topic_tables import check_one_schema, table_of
from kmq_storage.groups.membership import Version
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.few_records import Part
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic

#: Rows that are turned into records at a time: enough to be fast, few enough to stay in cache.
_HAND_ROWS = 4_096
_FOREVER = 365 * 86_400.0
Slices: TypeAlias = list[Slice]


class Taking:
    """Takes records of the assigned partitions; what was not handed out is taken again."""

    def __init__(self, log: CommitLog, assignment: Assignment) -> None:
        self._log = log
        self._assignment = assignment
        self._fetcher = assignment.fetcher
        self._holding = assignment.fetcher.holding
        #: About the most bytes of a call's records; it takes one at least.
        self.size = ANY
        #: Whether a call waits now.
        self._waits = False
        #: What a callback raised while a call had records already: the next call raises it.
        self._refusal: Exception | None = None

    def activity(self) -> tuple[object, int] | None:
        """Return what it has in hand, which differs after each poll; None while a call waits.

        May be called by another thread.
        """
        hand = self._holding.hand
        return None if self._waits or self._assignment.calls_back else (hand, hand.taken)

    def look_for(self, version: Version) -> None:
        """Make the next call look at the group first, unless it saw this version already.

        Called by another thread, again and again: what one call overlooks, the next one sees.
        """
        if version != self._assignment.version:
            self.call_in()

    def call_in(self) -> None:
        """Make the next call look at the group first, though it has records in hand."""
        self._assignment.is_called_in = True
        self._holding.hand.size = 0  # so that `poll` takes its slow path

    def _come_in(self) -> None:
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        if not self._assignment.is_called_in:
            return
        self._assignment.is_called_in = False
        hand = self._holding.hand
        hand.size = len(hand.records)
        self._assignment.refresh(giving=Giving.ALL)

    def go_back(self) -> None:
        """Begin where the last call began, unless that handed out what it took."""
        self._waits = False
        self._fetcher.go_back()

    def take_records(
        self, most: int, timeout: float | None, stopped: Stopped
    ) -> Taken[list[Record]]:
        """Take at most `most` records: those in hand, then others."""
        self._come_in()
        hand = self._holding.hand
        upto = min(hand.taken + most, len(hand.records))
        records = hand.records[hand.taken : upto]
        if records:
            self._go_on()
        if len(records) < most:
            hand, upto = self._fetcher.use_up(), 0
        left = self.size
        try:
            while len(records) < most and left > 0:
                found = self._next_part(_HAND_ROWS, left, timeout, stopped, begun=bool(records))
                if not records:
                    self._go_on()
                if found is None:
                    hand, upto = Hand(), 0  # used up; a callback may have sought elsewhere
                    break
                left = _left(left, found[1])
                made = self._made(*found)
                hand, upto = Hand(found, made, len(made)), min(most - len(records), len(made))
                records += made[:upto]
        except Exception as error:  # the next call meets it again
            self._met(error, begun=bool(records))
        return Taken(records, self._holding, self._holding.before, hand, upto)

    def _met(self, error: Exception, *, begun: bool) -> None:
        """Raise an error of a call that has taken nothing; else the next call meets it again."""
        refusal, self._assignment.refusal = self._assignment.refusal, None
        if not begun:
            self._holding.before = {}  # nothing was taken, and the turn stays
            raise error
        if error is refusal:
            self._refusal = error  # the subscriber is told of each partition once

    def _go_on(self) -> None:
        """Begin to take records: the subscriber knows by now what was lost before."""
        self._assignment.uncommitted.was_robbed = False

    def _made(self, place: TopicPartition, part: Part) -> list[Record]:
        try:
            return records_of(part)
        except Exception:
            self._fetcher.seek(place, part.offset)  # none of them was handed out
            raise

    def take_slices(
        self,
        rows: int,
        timeout: float | None,
        stopped: Stopped,
        *,
        share: int = ANY,
        size: int = ANY,
    ) -> Taken[Slices]:
        """Take at most `rows` records of topics with the same columns, in slices.

        Of one partition, at most `share` of them come in a turn, and that share of the bytes.
        """
        self._come_in()
        self._fetcher.put_back()
        check_one_schema(map(self._topic_of, self._fetcher.unpaused()))
        slices: Slices = []
        topics: list[Topic | None] = []
        left = rows
        turn = size * min(share, rows) // rows
        try:
            while left > 0 and size > 0:
                most, room = min(left, share), min(size, turn)
                found = self._next_part(most, room, timeout, stopped, begun=bool(slices))
                if not slices:
                    self._go_on()
                if found is None:
                    break
                topics.append(self._topic_of(found[0]))
                slices.append(found[1].as_slice())
                left, size = left - found[1].rows, _left(size, found[1])
                if found[1].rows < most and self._fetcher.was_cut(found[0]):
                    share = found[1].rows  # its records are large: others get no more of theirs
        except Exception as error:
            self._met(error, begun=bool(slices))
        check_one_schema(topics)  # one of them may have been made during the call
        return Taken(slices, self._holding, self._holding.before, self._holding.hand, 0)

    def _next_part(
        self, rows: int, size: int, timeout: float | None, stopped: Stopped, *, begun: bool
    ) -> tuple[TopicPartition, Part] | None:
        """Return the next records, at most `rows` and `size`; None when none come in time.

        A call that has `begun` to take records does not wait for others.
        """
        found = None if self._fetcher.drained else self._fetcher.next_part(rows, size)
        if found is not None:
            return found
        if timeout is None and not begun:
            self._assignment.check_wanted()
        now = self._log.environment.monotonic
        deadline = now() + (0.0 if begun else _FOREVER if timeout is None else timeout)
        state = self._assignment.refresh(giving=Giving.NONE if begun else Giving.ALL)
        while True:
            seen = state.lsn  # read first: another thread may move the state on at any time
            found = self._fetcher.next_part(rows, size)
            left = deadline - now()
            if found is not None or left <= 0 or stopped():
                return found
            self._waits = True
            self._log.wait(seen, left, stopped, self._rehearse)
            self._waits = False
            # In a bucket waiting has looked already.
            state = self._assignment.knowing(self._assignment.seen(), giving=Giving.ALL)

    def _rehearse(self) -> None:
        part = self._fetcher.read_again()
        if part is not None:
            records_of(part)

    def _topic_of(self, place: TopicPartition) -> Topic | None:
        return self._log.state.topic_by_id(place.topic_id)


def _left(size: int, part: Part) -> int:
    """How many bytes a call may still read behind a part."""
    return size if size == ANY else size - part.size


def in_table(taken: Taken[Slices]) -> Taken[pa.Table | None]:
    """What was taken as one table, or None when nothing came."""
    table = table_of(taken.value) if taken.value else None
    return Taken(table, taken.holding, taken.before, taken.hand, taken.upto)
