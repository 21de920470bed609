"""The consumer: records one by one, in lists or as Arrow; alone or as a group's member."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from kmq_spark.client.arguments import (
    check_choice,
    checked_count,
    checked_offset,
    checked_offsets,
    checked_partition,
    checked_timeout,
)
from kmq_spark.client.assignment import Assignment
from kmq_spark.client.group_member import GroupMember, Offsets
from kmq_spark.client.hand import Hand, Taken
from kmq_spark.client.member_watch import MemberWatch
from kmq_spark.client.one_thread import OneThread, alone, alone_or_called_back
from kmq_spark.client.record import Record
from kmq_spark.client.resource import Stopped
from kmq_spark.client.subscription import (
    Listener,
    Partitions,
    Subscription,
    TopicPartition,
    assignment_of,
    by_topic,
    subscription_of,
)
from kmq_spark.client.taking import Taking
from kmq_spark.client.values import to_timestamp
from kmq_spark.errors import ClosedError, FencedError, IllegalStateError, InvalidRequestError
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.groups import check_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Partition
from kmq_storage.membership import MemberSettings
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.topics import first_offset_since

_LOGGER = logging.getLogger(__name__)
_RESETS = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The options of a consumer."""

    group: str | None = None
    name: str | None = None
    auto_offset_reset: str = "earliest"
    auto_commit: bool = False
    #: Seconds.
    max_poll_interval: float = 300.0
    session_timeout: float = 45.0
    assignor: str = "range"

    def __post_init__(self) -> None:
        check_choice("auto_offset_reset", self.auto_offset_reset, _RESETS)
        if self.auto_commit and self.group is None:
            raise InvalidRequestError("auto_commit needs a group", option="auto_commit")


class Consumer(OneThread):
    """Reads topics; one thread at a time, others get IllegalStateError (`close` excepted).

    A group's member starts at the group's committed offsets. Offsets mean "next to read".
    """

    def __init__(self, log: CommitLog, settings: ConsumerSettings) -> None:
        super().__init__()
        self._log = log
        self._auto_commit = settings.auto_commit
        self._auto_committed: dict[TopicPartition, int] = {}
        #: The last timeout of `poll` that was found to be one.
        self._asked: object = 0.0
        #: True in a forked child, for a group's member.
        self._parents = False
        self._member = member = _member_of(log, settings)
        self._assignment = Assignment(
            log,
            settings.auto_offset_reset,
            member,
            auto_commit=settings.auto_commit,
            patience=settings.max_poll_interval,
        )
        self._taking = Taking(log, self._assignment)
        self._holding = self._assignment.fetcher.holding
        self._uncommitted = self._assignment.uncommitted
        self._watch: MemberWatch | None = None
        if member is not None:
            self._watch = MemberWatch(self._taking, member.place, settings.max_poll_interval)
        reopen_in_child(self)

    def __repr__(self) -> str:
        return f"Consumer({None if self._member is None else self._member.group!r})"

    def after_fork_in_child(self) -> None:
        """A group's member stays the parent's; others go on by themselves."""
        self._busy, self._inside = threading.Lock(), 0
        if self._member is not None:
            self._parents = True
            self._holding.hand = Hand()

    # --- what to read -------------------------------------------------------------------

    @alone
    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read topics by name, or every topic in whose name the pattern is found, later ones too.

        NotFoundError for an unknown topic. The callbacks get `{topic: [partitions]}`, and may ask
        for positions, seek, pause and commit; `on_revoke` also when the consumer is closed.
        """
        wanted = subscription_of(self._log.refresh(), topics, pattern)
        self._assignment.follow(
            replace(wanted, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        )

    @alone
    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions."""
        self._assignment.follow(assignment_of(self._log.refresh(), partitions))

    @alone
    def unsubscribe(self) -> None:
        """Read nothing."""
        self._assignment.follow(Subscription())

    @alone_or_called_back
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that are read now, per topic."""
        self._assignment.refresh()
        return by_topic(self._assignment.partitions())

    # --- records ------------------------------------------------------------------------

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """The next record, or None when there is none within `timeout` seconds."""
        if self._busy.locked():
            self._check_free()
        if timeout is not self._asked:
            checked_timeout(timeout)
            self._asked = timeout  # so that the next call need not look
        hand = self._holding.hand
        taken = hand.taken
        if taken < hand.size and not self._auto_commit:
            record = hand.records[taken]
            hand.taken = taken + 1  # and returned, without a call that could be interrupted
            return record
        records = self._take_records(1, timeout).hand_out()
        return records[0] if records else None

    def consume(self, max_records: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """What is there, at most `max_records`; waits up to `timeout` seconds for the first."""
        return self._take_records(max_records, timeout).hand_out()

    def consume_arrow(self, max_rows: int = 65_536, timeout: float | None = 1.0) -> pa.Table | None:
        """The same as one table with the columns of `Store.read`, or None when nothing came.

        InvalidRequestError over topics of different schemas.
        """
        return self._take_table(max_rows, timeout).hand_out()

    @alone
    def _take_records(
        self, most: int, timeout: float | None, stopped: Stopped = lambda: False
    ) -> Taken[list[Record]]:
        most, seconds = checked_count("max_records", most), checked_timeout(timeout)
        taken = self._taking.take_records(most, seconds, lambda: self._stopped() or stopped())
        if not taken.value:
            self._check_open()
        return taken

    @alone
    def _take_table(
        self, most: int, timeout: float | None, stopped: Stopped = lambda: False
    ) -> Taken[pa.Table | None]:
        most, seconds = checked_count("max_rows", most), checked_timeout(timeout)
        taken = self._taking.take_table(most, seconds, lambda: self._stopped() or stopped())
        if taken.value is None:
            self._check_open()
        return taken

    def __iter__(self) -> Iterator[Record]:
        """Records as they come, until the consumer is closed."""
        if not self._closed:
            self._assignment.check_wanted()
        while True:
            try:
                record = self.poll(timeout=None)
            except ClosedError:
                return
            if record is not None:
                yield record

    def _stopped(self) -> bool:
        return self._closed

    # --- positions ----------------------------------------------------------------------

    @alone_or_called_back
    def position(self) -> dict[str, dict[int, int]]:
        """The next offset that each partition hands out."""
        return self._assignment.current_positions()

    @alone_or_called_back
    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions of everything handed out, or the given offsets, for the group.

        OffsetOutOfRangeError outside the log, FencedError when the group moved on.
        """
        given = None if offsets is None else checked_offsets(offsets)
        self._commit(given)

    def _commit(self, offsets: Offsets | None = None, *, durable: bool | None = None) -> None:
        member, state = self._in_group(), self._log.refresh()
        if offsets is None:
            told = self._auto_commit or self._assignment.calls_back
            if self._uncommitted.was_robbed and not told:
                raise self._uncommitted.fenced()
            offsets = self._assignment.uncommitted_positions(state)
            self._uncommitted.gone.clear()  # who commits by itself lets records come again
        try:
            self._assignment.check_topics(state, offsets)
            member.commit(state, offsets, durable=durable)
        except FencedError:
            self._taking.call_in()  # the next one looks what is its own now
            raise

    @alone_or_called_back
    def _offsets_to_commit(self, offsets: Offsets | None = None) -> tuple[GroupOffsetsEntry, ...]:
        """Positions, or the given offsets, for a transaction to commit them as this member."""
        if self._auto_commit:
            raise IllegalStateError(
                "this consumer commits by itself (auto_commit), whatever becomes of a transaction; "
                "open it without"
            )
        member, state = self._in_group(), self._log.refresh()
        if offsets is None:
            offsets = self._assignment.positions_to_commit(state)
        self._assignment.check_topics(state, offsets)
        return member.entries(state, offsets)

    def _in_group(self) -> GroupMember:
        if self._member is None:
            raise IllegalStateError("commit needs a group; this consumer has none")
        return self._member

    @alone_or_called_back
    def committed(self) -> dict[str, dict[int, int]]:
        """What the group committed, for the partitions that are read now."""
        member, state = self._in_group(), self._assignment.refresh()
        return member.committed(state, by_topic(self._assignment.partitions()))

    @alone_or_called_back
    def lag(self) -> dict[str, dict[int, int]]:
        """How many records each partition still has to hand out; KmqWarning at a damaged end."""
        state, positions = self._assignment.refresh(), self._assignment.positions()
        warn_of_doubtful_ends(state, map(state.topic, positions), depth=2)
        return {
            topic: {n: state.topic(topic).partition(n).lag(at) for n, at in numbers.items()}
            for topic, numbers in positions.items()
        }

    @alone_or_called_back
    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with this offset; OffsetOutOfRangeError outside the log."""
        state = self._assignment.refresh()
        state.topic(topic)  # what can't be a name among them
        check_offsets(state, {topic: {checked_partition(partition): checked_offset(offset)}})
        self._assignment.seek(lambda _: offset, {topic: [partition]})

    @alone_or_called_back
    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Go on with the first record of these partitions, or of all."""
        state = self._assignment.refresh()
        self._assignment.seek(lambda each: _part(state, each).first, partitions)

    @alone_or_called_back
    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Go on with what comes from now on in these partitions, or in all."""
        state = self._assignment.refresh()
        self._assignment.seek(lambda each: _part(state, each).end, partitions)

    @alone_or_called_back
    def seek_to_time(self, when: datetime) -> None:
        """Go on with the first record at or after an instant; at the end where there is none."""
        instant = to_timestamp(when, "when")
        state = self._assignment.refresh()
        reader = ChunkReader(self._log.files)

        def offset_of(each: TopicPartition) -> int:
            found = first_offset_since(state.topic(each.topic), each.partition, instant, reader)
            return _part(state, each).end if found is None else found

        self._assignment.seek(offset_of, None)

    @alone_or_called_back
    def pause(self, partitions: Partitions | None = None) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`."""
        self._assignment.refresh()
        self._assignment.pause(partitions)

    @alone_or_called_back
    def resume(self, partitions: Partitions | None = None) -> None:
        """Go on with paused partitions, or with all."""
        self._assignment.refresh()
        self._assignment.resume(partitions)

    # --- lifetime -----------------------------------------------------------------------

    def _begin(self) -> None:
        if self._parents:
            raise IllegalStateError("this member of a group belongs to the parent process")
        self._taking.go_back()
        if self._auto_commit and self._assignment.places() != self._auto_committed:
            try:
                self._commit(durable=False)  # nobody is told; the next sync takes it along
            except FencedError as lost:
                _LOGGER.warning("what was handed out may come again: %s", lost)
            self._auto_committed = self._assignment.places()

    def close(self) -> None:
        """Leave the group and end; from any thread, again is no error."""
        self.__exit__(None, None, None)

    def _calls_back(self) -> bool:
        return self._assignment.calls_back

    def _wake(self) -> None:
        self._log.wake_waiters()

    def _end(self, *, commit: bool) -> None:
        with ExitStack() as ending:
            ending.callback(self._assignment.fetcher.let_go)
            if self._member is not None and self._watch is not None:
                ending.callback(self._member.place.leave)
                ending.callback(self._watch.end)
            ending.callback(self._assignment.revoke)
            if commit:
                self._taking.go_back()
                self._commit()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self._parents:
            self._close(commit=self._auto_commit and error is None)


def _member_of(log: CommitLog, settings: ConsumerSettings) -> GroupMember | None:
    if settings.group is None:
        return None
    name = settings.name
    if name is None:
        name = f"member-{log.environment.new_uuid().hex[:12]}"
    facts = (settings.name is not None, settings.assignor, settings.session_timeout)
    return GroupMember(log, settings.group, MemberSettings(name, *facts))


def _part(state: StoreState, each: TopicPartition) -> Partition:
    return state.topic(each.topic).partition(each.partition)
