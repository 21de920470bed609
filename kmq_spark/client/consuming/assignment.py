"""The partitions that a consumer reads now, by its subscription and its group.

Not thread-safe: the consumer lets one thread in at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from kmq_spark.client.consuming.fetcher import NO_POSITION, Fetcher
from kmq_spark.client.consuming.group_member import GroupMember
from kmq_spark.client.consuming.subscription import (
    Listener,
    Partitions,
    Subscription,
    TopicPartition,
    by_topic,
)
from kmq_spark.client.consuming.uncommitted import Giving, Uncommitted
from kmq_spark.client.handles.arguments import checked_partitions
from kmq_spark.errors import FencedError, IllegalStateError, KmqError, OffsetOutOfRangeError
from kmq_storage.groups.administration import Offsets
from kmq_storage.groups.membership import NOT_SEEN, version_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState

Ready = Callable[[list[TopicPartition]], list[TopicPartition]]


class Assignment:
    """What is read: it follows a subscription as topics and partitions come and go."""

    def __init__(
        self,
        log: CommitLog,
        reset: str,
        member: GroupMember | None,
        *,
        auto_commit: bool,
        patience: float,
    ) -> None:
        """`patience`: for how many seconds other members wait for an `on_revoke` that fails."""
        self._log = log
        self._patience = patience
        #: Since when one fails, by the monotonic clock.
        self._failing_since: float | None = None
        self._member = member
        self._auto_commit = auto_commit
        self.fetcher = Fetcher(log, reset)
        self._subscription = Subscription()
        #: Whether nothing was named yet: who joined a group then would give away what waits for it.
        self._is_outside = True
        #: The partitions that existed when the subscription began.
        self._were_there: frozenset[TopicPartition] = frozenset()
        self._group = member.group if member else ""
        #: The definitions of topics, and the version of the group, that were seen last.
        self._definitions, self.version = -1, NOT_SEEN
        #: Whether the next call looks at the group first, whatever it has in hand.
        self.is_called_in = False
        #: Whether a callback runs, which may use its consumer.
        self.calls_back = False
        #: What a callback raised, until a call raises it.
        self.refusal: Exception | None = None
        #: Which of the partitions that are planned for other members can go now.
        self.ready_to_go: Ready = list
        self.uncommitted = Uncommitted(self._group)

    def check_wanted(self) -> None:
        """IllegalStateError when a wait for records would never end."""
        if self._subscription.is_empty:
            raise IllegalStateError(
                "the consumer has no topics, so no record would ever come: name them "
                "(`topics=[...]`), subscribe, or assign"
            )

    def follow(self, wanted: Subscription) -> None:
        """Read what this subscription names from now on; what it names still goes on as it is."""
        self.fetcher.put_back()
        state = self.seen()
        if self._member is not None and not self._member.is_in(state):
            self._lose(state, list(self.fetcher.positions))
        named = set(wanted.resolve(state))
        going = [each for each in self.fetcher.positions if each not in named]
        try:
            self._tell_of_the_end(going)
        finally:  # also after an error: else a failing callback could not be replaced
            self._begin(wanted, going)

    def _begin(self, wanted: Subscription, going: list[TopicPartition]) -> None:
        self._give_up(going)
        self._definitions, self._failing_since = -1, None
        if self._member is not None and self._member.enter(wanted):
            self._lose(self._log.state, list(self.fetcher.positions))  # it is another member now
        self._is_outside = False
        before, self._subscription = self._subscription, wanted
        state = self._log.refresh()
        came_later = set(before.resolve(state)) - self._were_there
        self._were_there = frozenset(wanted.resolve(state)) - came_later
        kept = [] if before.on_assign == wanted.on_assign else list(self.fetcher.positions)
        self._resolve(state, untold=kept)

    def refresh(self, *, giving: Giving = Giving.IDLE) -> StoreState:
        """See what others committed, and pick up topics and partitions that came or went.

        While a callback runs for some of them, the others wait for the next call. `giving` says
        which partitions the call may give away.
        """
        return self.knowing(self._log.refresh(), giving=giving)

    def knowing(self, state: StoreState, *, giving: Giving = Giving.IDLE) -> StoreState:
        """Do the same with a state that was just read; returns the state."""
        version = self._member.version(state) if self._member else NOT_SEEN
        is_news = state.definitions != self._definitions or version != self.version
        if is_news and not self.calls_back:
            try:
                self._resolve(state, giving=giving)
            except BaseException:
                self.is_called_in = True
                raise
        return state

    def _resolve(
        self,
        state: StoreState,
        *,
        giving: Giving = Giving.IDLE,
        untold: Iterable[TopicPartition] = (),
    ) -> None:
        """Own what is planned; `untold`: partitions that a new `on_assign` has not heard of."""
        definitions = state.definitions  # a callback may change topics, and sees that in the state
        version, has_released = NOT_SEEN, True
        if self._member is not None:
            state = self._take_part(self._member, state)
            # Before the plan: a callback or another thread may move the state on at any time.
            version = self._member.version(state)
            has_released = self._release(self._member, state, giving=giving)
        wanted = set(self._wanted(state))
        self._lose(state, [each for each in self.fetcher.positions if each not in wanted])
        wanted_now = self._wanted(state)
        gained = [each for each in wanted_now if each not in self.fetcher.positions]
        for partition in gained:
            came_later = partition not in self._were_there
            self.fetcher.add(partition, self._committed(state, partition), came_later=came_later)
            self.uncommitted.begin(partition, self.fetcher.positions[partition])
        if has_released:
            self._definitions, self.version = definitions, version
        untold = [each for each in untold if each in wanted]
        self._tell(self._subscription.on_assign, untold + gained)

    def _committed(self, state: StoreState, partition: TopicPartition) -> int | None:
        return self._member.committed_position(state, partition) if self._member else None

    def _wanted(self, state: StoreState) -> list[TopicPartition]:
        """Return the partitions to read; in a group, those that this member owns."""
        if self._member is None:
            return self._subscription.resolve(state)
        own, moving = self._member.own(state), self._member.moving(state)
        return self._subscription.resolve(
            state, own.union(each.key for each in self.fetcher.positions if each.key in moving)
        )

    def _take_part(self, member: GroupMember, state: StoreState) -> StoreState:
        """Be a member of the group, whose plan has all partitions; return the state with it."""
        if self._is_outside:
            return state
        if not member.is_in(state):
            self.fetcher.holding.before = {}
            self._lose(state, list(self.fetcher.positions))
            member.enter(self._subscription)
            state = self._log.refresh()
        if state.definitions != self._definitions and member.renew(state):
            state = self._log.refresh()
        return state

    def _release(self, member: GroupMember, state: StoreState, *, giving: Giving) -> bool:
        """Give away the partitions that are planned for other members; False if some stay."""
        moving = member.moving(state)
        held = [each for each in self.fetcher.positions if each.key in moving]
        going = [] if giving is Giving.NONE else self.ready_to_go(held)
        if giving is Giving.IDLE and self._subscription.on_revoke is None:
            busy = self.uncommitted.among(going, self.places(), state)
            going = [each for each in going if each not in busy]
        staying = {each.key for each in held} - {each.key for each in going}
        if not moving:
            self._failing_since = None  # no other member waits any more
        if moving - staying:
            self.fetcher.put_back()
            failure = self._ask(going)
            commits = self._auto_commit and failure is None
            offsets = self._positions_inside(state, going) if commits else {}
            self._give_up(going)
            member.release(state, moving - staying, offsets)
            if failure is not None:
                raise failure
            self._log.refresh()  # what was known before would count them as this member's again
        if staying:
            self.is_called_in = True
        return not staying

    def _ask(self, going: list[TopicPartition]) -> Exception | None:
        """Call `on_revoke` for these partitions; returns its error when they go all the same.

        A callback that fails keeps them and is asked again, until `patience` is over.
        """
        now = self._log.environment.monotonic()
        since, self._failing_since = self._failing_since, None
        try:
            self._tell(self._subscription.on_revoke, going)
        except Exception as failure:
            since = now if since is None else since
            if now - since >= self._patience:
                return failure
            self._failing_since = since
            raise
        return None

    def _lose(self, state: StoreState, partitions: list[TopicPartition]) -> None:
        """Stop reading partitions that were taken from this consumer, and call `on_lost`."""
        robbed = self.uncommitted.part(partitions, self.places(), state, lost=True)
        self.uncommitted.was_robbed |= robbed
        self._remove(partitions)
        self._tell(self._subscription.on_lost, partitions)

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.fetcher.remove(partition)

    def _give_up(self, partitions: list[TopicPartition]) -> None:
        """Stop reading partitions whose subscriber knows that they are given away."""
        if partitions and self._member is not None:
            with suppress(KmqError):
                self._log.refresh()  # the callback may have committed them
            self.uncommitted.part(partitions, self.places(), self._log.state)
        self._remove(partitions)

    def revoke(self) -> None:
        """Call back that nothing is read any more."""
        self.fetcher.go_back()
        self.fetcher.put_back()
        self._tell_of_the_end(list(self.fetcher.positions))

    def _tell_of_the_end(self, partitions: list[TopicPartition]) -> None:
        """Call `on_revoke`, or `on_lost` for partitions that were taken before."""
        member = self._member
        if member is not None and partitions and not member.is_in(self.seen()):
            self._tell(self._subscription.on_lost, partitions)
            return
        self._tell(self._subscription.on_revoke, partitions)

    def seen(self) -> StoreState:
        """The state as it is; in a bucket, where a look is a request, as it was seen last."""
        return self._log.state if self._log.is_remote else self._log.refresh()

    def _tell(self, listener: Listener | None, partitions: list[TopicPartition]) -> None:
        if listener is None or not partitions:
            return
        try:
            self.calls_back = True
            listener(by_topic(partitions))
        except Exception as refusal:
            self.refusal = refusal
            raise
        finally:
            self.calls_back = False

    def partitions(self) -> list[TopicPartition]:
        """The partitions by topic and number."""
        return sorted(self.fetcher.positions, key=lambda each: (each.topic, each.partition))

    def positions(self) -> dict[str, dict[int, int]]:
        """Return the next offset of each partition that has a position."""
        found: dict[str, dict[int, int]] = {}
        for each, position in sorted(self.places().items()):
            if position != NO_POSITION:
                found.setdefault(each.topic, {})[each.partition] = position
        return found

    def places(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition as it is kept, also where there is none."""
        found, place = dict(self.fetcher.positions), self.fetcher.place_in_hand()
        return found if place is None else found | {place[0]: place[1]}

    def committable_positions(self, state: StoreState) -> dict[str, dict[int, int]]:
        """Return the positions inside the log; one that was trimmed away is reset, not committed.

        Whether the partitions are still this member's, the commit decides.
        """
        return self._positions_inside(state, self.fetcher.positions)

    def uncommitted_positions(self, state: StoreState) -> dict[str, dict[int, int]]:
        """Return the positions that the group has not committed yet.

        When the group changed meanwhile, all are returned: a member that lost any then gets
        FencedError.
        """
        if version_of(state, self._group) != self.version:
            return self.committable_positions(state)
        known, nothing = state.group(self._group).offsets, dict[int, int]()
        news = [
            each
            for each, at in self.places().items()
            if known.get(each.topic_id, nothing).get(each.partition) != at
        ]
        return self._positions_inside(state, news)

    def commit(
        self,
        member: GroupMember,
        state: StoreState,
        offsets: Offsets | None,
        *,
        durable: bool | None,
    ) -> None:
        """Commit these offsets, or the positions without what is trimmed meanwhile."""
        given = self.uncommitted_positions(state) if offsets is None else offsets
        try:
            self.check_topics(state, given)
            member.commit(state, given, durable=durable)
            self.uncommitted.note(given)
        except OffsetOutOfRangeError:
            state = self._log.refresh()
            if offsets is not None or self.uncommitted_positions(state) == given:
                raise
            self.commit(member, state, None, durable=durable)

    def check_topics(self, state: StoreState, offsets: Offsets) -> None:
        """FencedError for offsets of a deleted topic whose name another topic has now."""
        read = {each.topic: each.topic_id for each in self.fetcher.positions}
        for name in offsets:
            topic = state.find_topic(name)
            if topic is not None and read.get(name, topic.id) != topic.id:
                raise FencedError(
                    f"the topic {name} that was read was deleted, and another topic has its name "
                    "now: offsets of the deleted one can't be committed",
                    topic=name,
                )

    def _positions_inside(
        self, state: StoreState, partitions: Iterable[TopicPartition]
    ) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        places = self.places()
        for each in partitions:
            topic, at = state.topic_by_id(each.topic_id), places.get(each, NO_POSITION)
            if topic is not None and at >= topic.partition(each.partition).first:
                found.setdefault(each.topic, {})[each.partition] = at
        return found

    def seek(
        self, offset_of: Callable[[TopicPartition], int], partitions: Partitions | None
    ) -> None:
        """Continue elsewhere in these partitions, or in all."""
        self.fetcher.put_back()
        for partition in self._chosen(partitions):
            before, target = self.fetcher.positions[partition], offset_of(partition)
            self.fetcher.seek(partition, target)
            self.uncommitted.seek(partition, before, target)
            # Nor go back to where the call began in which this callback runs.
            self.fetcher.holding.before.pop(partition, None)

    def pause(self, partitions: Partitions | None) -> None:
        """Hand out nothing of these partitions, or of all."""
        self.fetcher.put_back()
        self.fetcher.paused.update(self._chosen(partitions))

    def resume(self, partitions: Partitions | None) -> None:
        """Continue with these partitions, or with all."""
        self.fetcher.paused.difference_update(self._chosen(partitions))
        self.fetcher.drained = False

    def _chosen(self, partitions: Partitions | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self.fetcher.positions)
        partitions = checked_partitions(partitions)
        return [self._one(topic, n) for topic, numbers in partitions.items() for n in numbers]

    def _one(self, topic: str, number: int) -> TopicPartition:
        known, assigned = self._log.state.find_topic(topic), self.fetcher.positions
        each = TopicPartition(topic, number, known.id if known else b"")
        if each in assigned:  # found without a pass over thousands
            return each
        for former in assigned:  # its topic was deleted just now
            if former[:2] == (topic, number):
                return former
        raise IllegalStateError(
            f"{topic}-{number} is not assigned to this consumer", topic=topic, partition=number
        )
