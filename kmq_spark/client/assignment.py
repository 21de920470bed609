"""The partitions that a consumer reads now, and the records it has in hand.

Not thread-safe: the consumer lets one thread in at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from kmq_spark.client.arguments import checked_partitions
from kmq_spark.client.fetcher import NO_POSITION, Fetcher
from kmq_spark.client.group_member import GroupMember
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

Ready = Callable[[list[TopicPartition]], list[TopicPartition]]


class Assignment:
    """What is read: follows a subscription as topics and partitions come and go."""

    def __init__(
        self, log: CommitLog, reset: str, member: GroupMember | None, *, auto_commit: bool = False
    ) -> None:
        self._log = log
        self._member = member
        self._auto_commit = auto_commit
        self.holding = Holding()
        self._fetcher = Fetcher(log, reset, self.holding)
        self._subscription = Subscription()
        self._group = member.group if member else ""
        #: The definitions of topics, and the generation of the group, that are followed.
        self._definitions, self._generation = -1, 0
        #: Whether the next call looks at the group first, whatever it has in hand.
        self.is_called_in = False
        #: Whether a call waits now.
        self._waits = False
        #: Whether the call that is going on has records to hand out.
        self._has_taken = False
        #: Whether the subscriber is being told something: it may use its consumer meanwhile.
        self.calls_back = False
        #: Which of those that shall be another member's can go by now; the others stay for now.
        self.ready_to_go: Ready = list

    def follow(self, wanted: Subscription) -> None:
        """Read what this subscription says from now on."""
        self.put_back()
        old = list(self._fetcher.positions)
        self._tell(self._subscription.on_revoke, old)
        self._remove(old)
        self._definitions = -1
        if self._member is not None:
            self._member.enter(wanted)
        self._subscription = wanted
        self._resolve(self._log.refresh())

    def refresh(self) -> StoreState:
        """See what others committed; pick up topics and partitions that came or went.

        While the subscriber is told of some, others wait for the next call.
        """
        return self._knowing(self._log.refresh())

    def _knowing(self, state: StoreState) -> StoreState:
        group = state.groups.get(self._group)
        generation = group.generation if group else 0
        is_news = state.definitions != self._definitions or generation != self._generation
        if is_news and not self.calls_back:
            try:
                self._resolve(state)
            except BaseException:
                self.is_called_in = True
                raise
        return state

    def _resolve(self, state: StoreState) -> None:
        definitions = state.definitions  # a callback may change topics, and see that in the state
        generation, has_released = 0, True
        if self._member is not None:
            state = self._take_part(self._member, state)
            has_released = self._release(self._member, state)
            generation = self._member.generation(state)
        wanted = set(self._wanted(state))
        lost = [each for each in self._fetcher.positions if each not in wanted]
        self._remove(lost)
        self._tell(self._subscription.on_lost, lost)
        wanted_now = self._wanted(state)
        gained = [each for each in wanted_now if each not in self._fetcher.positions]
        for partition in gained:
            self._fetcher.add(partition, self._committed(state, partition))
        if has_released:
            self._definitions, self._generation = definitions, generation
        self._tell(self._subscription.on_assign, gained)

    def _committed(self, state: StoreState, partition: TopicPartition) -> int | None:
        return self._member.committed_position(state, partition) if self._member else None

    def _wanted(self, state: StoreState) -> list[TopicPartition]:
        """What is to be read; of a group's partitions those that this member owns."""
        found = self._subscription.resolve(state)
        if self._member is None:
            return found
        own, moving = self._member.own(state), self._member.moving(state)
        held = self._fetcher.positions
        return [each for each in found if each.key in own or (each.key in moving and each in held)]

    def _take_part(self, member: GroupMember, state: StoreState) -> StoreState:
        """Be in the group, whose plan has all partitions; the state that says so."""
        if not member.is_in(state):
            lost = list(self._fetcher.positions)
            self.holding.hand, self.holding.before = Hand(), {}
            self._remove(lost)
            self._tell(self._subscription.on_lost, lost)
            member.enter(self._subscription)
            state = self._log.refresh()
        if state.definitions != self._definitions and member.renew(state):
            state = self._log.refresh()
        return state

    def _release(self, member: GroupMember, state: StoreState) -> bool:
        """Give away what shall be another member's, unless this call has records of it already.

        False when some of it stays for now.
        """
        moving = member.moving(state)
        held = [each for each in self._fetcher.positions if each.key in moving]
        going = [] if self._has_taken else self.ready_to_go(held)
        staying = {each.key for each in held if each not in going}
        if moving - staying:
            self.put_back()
            self._tell(self._subscription.on_revoke, going)
            offsets = self._positions_inside(state, going) if self._auto_commit else {}
            self._remove(going)
            member.release(state, moving - staying, offsets)
        if staying:
            self.is_called_in = True
        return not staying

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._fetcher.remove(partition)

    def activity(self) -> tuple[object, int] | None:
        """What it has in hand, always another thing after a poll; None while one waits.

        For another thread.
        """
        hand = self.holding.hand
        return None if self._waits or self.calls_back else (hand, hand.taken)

    def look_for(self, generation: int) -> None:
        """Have the next call look at the group first, unless it saw this generation already.

        From another thread, again and again: what one call overlooks the next one sees.
        """
        if generation != self._generation:
            self.is_called_in = True
            self.holding.hand.size = 0  # so that it is a call

    def _come_in(self) -> None:
        self.is_called_in = False
        hand = self.holding.hand
        hand.size = len(hand.records)
        self.refresh()

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
        self._has_taken = self._waits = False
        self._fetcher.go_back()

    def take_records(
        self, most: int, timeout: float | None, stopped: Callable[[], bool]
    ) -> Taken[list[Record]]:
        """At most so many records: those in hand, then others."""
        if self.is_called_in:
            self._come_in()
        hand = self.holding.hand
        upto = min(hand.taken + most, len(hand.records))
        records = hand.records[hand.taken : upto]
        if len(records) < most:
            hand, upto = self._used_up(), 0
        try:
            while len(records) < most:
                if records:
                    self._has_taken = True
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
        if self.is_called_in:
            self._come_in()
        self.put_back()
        self._check_one_schema()
        slices: list[Slice] = []
        left = rows
        try:
            while left > 0:
                if slices:
                    self._has_taken = True
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
            self._waits = True
            self._log.wait(state.lsn, left, stopped, self._rehearse)
            self._waits = False
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
        """The next offset that each partition hands out, of those that have one."""
        found: dict[str, dict[int, int]] = {}
        for each in self.partitions():
            if (position := self._fetcher.positions[each]) != NO_POSITION:
                found.setdefault(each.topic, {})[each.partition] = position
        place = self._place_in_hand()
        if place is not None:
            found[place[0].topic][place[0].partition] = place[1]
        return found

    def current_positions(self) -> dict[str, dict[int, int]]:
        """The positions without partitions that are gone meanwhile."""
        self.refresh()
        return self.positions()

    def committable_positions(self) -> dict[str, dict[int, int]]:
        """Those that lie inside the log: one that was trimmed away will be reset, not kept.

        Whether they are still this member's to commit, the log decides.
        """
        return self._positions_inside(self._log.refresh(), self.partitions())

    def _positions_inside(
        self, state: StoreState, partitions: Iterable[TopicPartition]
    ) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        positions = self.positions()
        for name, number, topic_id in partitions:
            topic, at = state.topic_by_id(topic_id), positions.get(name, {}).get(number)
            if topic is not None and at is not None and at >= topic.partition(number).start:
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
