"""The partitions that a consumer reads now, and the records it has in hand.

Not thread-safe: the consumer lets one thread in at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from kmq_spark.client.arguments import checked_partitions
from kmq_spark.client.fetcher import Fetcher
from kmq_spark.client.hand import Hand, Holding, Taken
from kmq_spark.client.record import Record
from kmq_spark.client.record_values import records_of
from kmq_spark.client.subscription import (
    Listener,
    Partitions,
    Subscription,
    TopicPartition,
    by_topic,
)
from kmq_spark.client.topic_tables import check_one_schema, table_of
from kmq_spark.errors import IllegalStateError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.few_records import Part
from kmq_storage.log.scan import Slice
from kmq_storage.log.state import StoreState

#: Rows that are turned into records at a time: enough to be fast, few enough to stay in cache.
_HAND_ROWS = 4_096
_FOREVER = 365 * 86_400.0


class Assignment:
    """What is read: follows a subscription as topics and partitions come and go."""

    def __init__(
        self, log: CommitLog, reset: str, group: str | None, tell: Callable[[Partitions], object]
    ) -> None:
        self._log = log
        #: Told the partitions after every change.
        self._tell_all = tell
        self._group = group
        self.holding = Holding()
        self._fetcher = Fetcher(log, reset, self.holding)
        self._subscription = Subscription()
        self._definitions = -1
        #: Whether the subscriber is being told something: it may use its consumer meanwhile.
        self.calls_back = False

    def follow(self, wanted: Subscription) -> None:
        """Read what this subscription says from now on."""
        self.put_back()
        old = list(self._fetcher.positions)
        self._tell(self._subscription.on_revoke, old)
        for partition in old:
            self._fetcher.remove(partition)
        self._subscription = wanted
        self._resolve(self._log.refresh())

    def refresh(self) -> StoreState:
        """See what others committed; pick up topics and partitions that came or went.

        While the subscriber is told of some, others wait for the next call.
        """
        return self._knowing(self._log.refresh())

    def _knowing(self, state: StoreState) -> StoreState:
        if not self.calls_back and state.definitions != self._definitions:
            self._resolve(state)
        return state

    def _resolve(self, state: StoreState) -> None:
        definitions = state.definitions  # a callback may change topics, and see that in the state
        wanted = set(self._subscription.resolve(state))
        lost = [each for each in self._fetcher.positions if each not in wanted]
        for partition in lost:
            self._fetcher.remove(partition)
        self._tell(self._subscription.on_lost, lost)
        wanted_now = self._subscription.resolve(state)
        gained = [each for each in wanted_now if each not in self._fetcher.positions]
        committed = state.group_offsets(self._group) if self._group else {}
        for partition in gained:
            position = committed.get(partition.topic_id, {}).get(partition.partition)
            self._fetcher.add(partition, position)
        self._definitions = definitions
        if gained or lost:
            self._tell_all(by_topic(self.partitions()))
        self._tell(self._subscription.on_assign, gained)

    def revoke(self) -> None:
        """Tell the subscriber that nothing is read any more."""
        self.go_back()
        self.put_back()
        self._tell(self._subscription.on_revoke, list(self._fetcher.positions))

    def _tell(self, listener: Listener | None, partitions: list[TopicPartition]) -> None:
        if listener is None or not partitions:
            return
        try:
            self.calls_back = True
            listener(by_topic(partitions))
        finally:
            self.calls_back = False

    def partitions(self) -> list[TopicPartition]:
        """The partitions by topic and number."""
        return sorted(self._fetcher.positions, key=lambda each: (each.topic, each.partition))

    def go_back(self) -> None:
        """Begin where the last call began, unless it handed out what it took."""
        self._fetcher.go_back()

    def take_records(
        self, most: int, timeout: float | None, stopped: Callable[[], bool]
    ) -> Taken[list[Record]]:
        """At most so many records: those in hand, then others."""
        hand = self.holding.hand
        upto = min(hand.taken + most, hand.size)
        records = hand.records[hand.taken : upto]
        if len(records) < most:
            hand, upto = self._used_up(), 0
        try:
            while len(records) < most:
                found = self._next_part(_HAND_ROWS, 0.0 if records else timeout, stopped)
                if found is None:
                    hand, upto = Hand(), 0  # used up; a callback may have sought elsewhere
                    break
                made = self._made(*found)
                hand, upto = Hand(found, made, len(made)), min(most - len(records), len(made))
                records += made[:upto]
        except Exception:  # it is met again by the next call
            if not records:
                self.holding.before = {}  # nothing was taken, and whose turn it is stays
                raise
        return Taken(records, self.holding, self.holding.before, hand, upto)

    def _made(self, place: TopicPartition, part: Part) -> list[Record]:
        try:
            return records_of(part)
        except Exception:
            self._fetcher.seek(place, part.offset)  # none of them was handed out
            raise

    def _used_up(self) -> Hand:
        """Let go of what is in hand, since the call takes all of it: memory is used again soon."""
        place, empty = self._place_in_hand(), Hand()
        if place is not None:
            self.holding.before[place[0]] = place[1]
        self.holding.hand = empty  # no call comes in between: it could be interrupted
        return empty

    def take_table(
        self, rows: int, timeout: float | None, stopped: Callable[[], bool]
    ) -> Taken[pa.Table | None]:
        """At most so many records as one table, or None when nothing came."""
        self.put_back()
        self._check_one_schema()
        slices: list[Slice] = []
        left = rows
        try:
            while left > 0:
                found = self._next_part(left, 0.0 if slices else timeout, stopped)
                if found is None:
                    break
                slices.append(found[1].as_slice())
                left -= found[1].rows
        except Exception:
            if not slices:
                self.holding.before = {}
                raise
        table = table_of(slices) if slices else None
        return Taken(table, self.holding, self.holding.before, self.holding.hand, 0)

    def _next_part(
        self, rows: int, timeout: float | None, stopped: Callable[[], bool]
    ) -> tuple[TopicPartition, Part] | None:
        """The next records, at most `rows`; None when none come within the time."""
        found = None if self._fetcher.drained else self._fetcher.next_part(rows)
        if found is not None:
            return found
        now = self._log.environment.monotonic
        deadline = now() + (_FOREVER if timeout is None else timeout)
        state = self.refresh()
        while True:
            found = self._fetcher.next_part(rows)
            left = deadline - now()
            if found is not None or left <= 0 or stopped():
                return found
            self._log.wait(state.lsn, left, stopped, self._rehearse)
            # Where each look is a request, waiting has looked already.
            state = self._knowing(self._log.state) if self._log.is_remote else self.refresh()

    def _rehearse(self) -> None:
        part = self._fetcher.read_again()
        if part is not None:
            records_of(part)

    def _check_one_schema(self) -> None:
        """InvalidRequestError unless all topics that are read have the same columns."""
        topics = (self._log.state.topic_by_id(each.topic_id) for each in self._fetcher.positions)
        check_one_schema(topic for topic in topics if topic is not None)

    def put_back(self) -> None:
        """Give records in hand that nobody got back to their partition."""
        place, empty = self._place_in_hand(), Hand()
        if place is not None:
            self._fetcher.seek(place[0], place[1])
        self.holding.hand = empty  # no call comes in between: it could be interrupted

    def _place_in_hand(self) -> tuple[TopicPartition, int] | None:
        """The partition of which records are in hand, and the offset of the next one."""
        hand = self.holding.hand
        if hand.source is None or hand.source[0] not in self._fetcher.positions:
            return None
        partition, part = hand.source
        return partition, part.offset_of(hand.taken)

    def positions(self) -> dict[str, dict[int, int]]:
        """The next offset that each partition hands out."""
        found: dict[str, dict[int, int]] = {}
        for each in self.partitions():
            found.setdefault(each.topic, {})[each.partition] = self._fetcher.positions[each]
        place = self._place_in_hand()
        if place is not None:
            found[place[0].topic][place[0].partition] = place[1]
        return found

    def current_positions(self) -> dict[str, dict[int, int]]:
        """The positions without partitions that are gone meanwhile."""
        self.refresh()
        return self.positions()

    def committable_positions(self) -> dict[str, dict[int, int]]:
        """Those that lie inside the log: one that was trimmed away will be reset, not kept."""
        state = self.refresh()
        found: dict[str, dict[int, int]] = {}
        positions = self.positions()
        for name, number, topic_id in self.partitions():
            topic, at = state.topic_by_id(topic_id), positions[name][number]
            if topic is not None and at >= topic.partition(number).start:
                found.setdefault(name, {})[number] = at
        return found

    def seek(
        self, offset_of: Callable[[TopicPartition], int], partitions: Partitions | None
    ) -> None:
        """Go on elsewhere in these partitions, or in all."""
        self.put_back()
        for partition in self._chosen(partitions):
            self._fetcher.seek(partition, offset_of(partition))
            self.holding.before.pop(partition, None)  # where the call began that calls back

    def pause(self, partitions: Partitions | None) -> None:
        """Hand out nothing of these partitions, or of all."""
        self.put_back()
        self._fetcher.paused.update(self._chosen(partitions))

    def resume(self, partitions: Partitions | None) -> None:
        """Go on with these partitions, or with all."""
        self._fetcher.paused.difference_update(self._chosen(partitions))
        self._fetcher.drained = False

    def _chosen(self, partitions: Partitions | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self._fetcher.positions)
        partitions = checked_partitions(partitions)
        assigned = {(each.topic, each.partition): each for each in self._fetcher.positions}
        wanted = [(topic, n) for topic, numbers in partitions.items() for n in numbers]
        for topic, number in wanted:
            if (topic, number) not in assigned:
                raise IllegalStateError(
                    f"{topic}-{number} is not assigned to this consumer",
                    topic=topic,
                    partition=number,
                )
        return [assigned[each] for each in wanted]
