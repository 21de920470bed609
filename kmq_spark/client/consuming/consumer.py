"""The consumer: records one by one, in lists or as Arrow; alone or as a member of a group."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from kmq_spark.client.consuming.assignment import Assignment
from kmq_spark.client.consuming.group_member import GroupMember
from kmq_spark.client.consuming.hand import Hand, Taken
from kmq_spark.client.consuming.member_watch import MemberWatch
from kmq_spark.client.consuming.settings import ConsumerSettings, member_of
from kmq_spark.client.consuming.subscription import (
    Listener,
    Partitions,
    Subscription,
    TopicPartition,
    assignment_of,
    by_topic,
    subscription_of,
)
from kmq_spark.client.consuming.taking import Slices, Taking, in_table
from kmq_spark.client.handles.arguments import (
    checked_count,
    checked_offset,
    checked_offsets,
    checked_partition,
    checked_timeout,
)
from kmq_spark.client.handles.one_thread import OneThread, alone, alone_or_called_back
from kmq_spark.client.handles.resource import Stopped
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.values import to_timestamp
from kmq_spark.errors import ClosedError, FencedError, IllegalStateError
from kmq_storage.groups.administration import Offsets, check_offsets
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.topics import first_offset_since

_LOGGER = logging.getLogger(__name__)


class Consumer(OneThread):
    """Reads topics, alone or as a member of a group; offsets mean "next to read".

    Partitions are `{topic: [partition, ...]}` in every call, and offsets of several of them
    `{topic: {partition: offset}}`. A member begins at the committed offsets of its group. Records
    of one partition come in offset order. Only one thread at a time may use a consumer
    (IllegalStateError), except to `close` it. It is a context manager, and iterates over records
    until it is closed.
    """

    def __init__(self, log: CommitLog, settings: ConsumerSettings) -> None:
        super().__init__()
        self._log = log
        self._auto_commit = settings.auto_commit
        self._auto_committed: dict[TopicPartition, int] = {}
        #: The last timeout of `poll` that was checked.
        self._asked: object = 0.0
        #: Whether this is a member that belongs to the parent of this forked process.
        self._parents = False
        self._member = member = member_of(log, settings)
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
        reopen_in_child(self._after_fork)

    def __repr__(self) -> str:
        return f"Consumer({None if self._member is None else self._member.group!r})"

    def _after_fork(self) -> None:
        """A member of a group stays the parent's; a consumer without group goes on by itself."""
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
        """Read these topics, or every topic in whose name the pattern is found.

        A pattern also finds later topics. Partitions read before that are named go on as they are.

        Args:
            topics: One topic, or several; NotFoundError for an unknown one.
            pattern: A regular expression instead. It is searched anywhere in a name, unless
                anchored.
            on_assign: Called with `{topic: [partition, ...]}` that are read from now on.
            on_revoke: Called before partitions are given away, also by `close`; it may commit.
            on_lost: Called for partitions that were taken from a member that was taken for dead.

        Callbacks run in the thread that calls the consumer. They may ask for positions, seek, pause
        and commit; what they raise is raised by the call.
        """
        wanted = subscription_of(self._log.refresh(), topics, pattern)
        self._assignment.follow(
            replace(wanted, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        )

    @alone
    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions: `{topic: [partition, ...]}`; those read go on as they are.

        In a group they belong to this member, and the other members share the rest.
        """
        self._assignment.follow(assignment_of(self._log.refresh(), partitions))

    @alone
    def unsubscribe(self) -> None:
        """Read nothing more; a member gives its partitions to the others."""
        self._assignment.follow(Subscription())

    @alone_or_called_back
    def assignment(self) -> dict[str, list[int]]:
        """Return the partitions that are read now: `{topic: [partition, ...]}`."""
        self._assignment.refresh()
        return by_topic(self._assignment.partitions())

    # --- records ------------------------------------------------------------------------

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None when none comes in `timeout` seconds (None: for ever)."""
        if self._busy.locked():
            self._check_free()
        if timeout is not self._asked:
            checked_timeout(timeout)
            self._asked = timeout  # so that the next call need not check it
        hand = self._holding.hand
        taken = hand.taken
        if taken < hand.size and not self._auto_commit:
            record = hand.records[taken]
            hand.taken = taken + 1  # and returned: no call in between could be interrupted
            return record
        records = self._take_records(1, timeout).hand_out()
        return records[0] if records else None

    def consume(self, max_records: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """Return at most `max_records` records that are there.

        Waits up to `timeout` seconds for the first (None: for ever); then the list is empty.
        """
        return self._take_records(max_records, timeout).hand_out()

    def consume_arrow(self, max_rows: int = 65_536, timeout: float | None = 1.0) -> pa.Table | None:
        """Return at most `max_rows` records as a table; None when none come in `timeout` seconds.

        The table has the columns of `Store.read`. InvalidRequestError when the topics that are read
        have different schemas.
        """
        return in_table(self._take_slices(max_rows, timeout)).hand_out()

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
    def _take_slices(
        self, /, most: int, timeout: float | None, stopped: Stopped = lambda: False, **limits: int
    ) -> Taken[Slices]:
        most, seconds = checked_count("max_rows", most), checked_timeout(timeout)
        is_over = lambda: self._stopped() or stopped()  # noqa: E731
        taken = self._taking.take_slices(most, seconds, is_over, **limits)
        if not taken.value:
            self._check_open()
        return taken

    def __iter__(self) -> Iterator[Record]:
        """Yield records as they come, until the consumer is closed.

        IllegalStateError for a consumer without topics, which would wait for ever.
        """
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
        """Return the next offset that each partition hands out: `{topic: {partition: offset}}`."""
        self._assignment.refresh()
        return self._assignment.positions()

    @alone_or_called_back
    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions of all handed out, or `{topic: {partition: next offset to read}}`.

        Raises:
            OffsetOutOfRangeError: An offset lies outside the log.
            FencedError: Partitions went to another member, which gets these records again; or
                another member of this name was opened, and this one is finished.
            IllegalStateError: The consumer has no group.
        """
        self._commit(None if offsets is None else checked_offsets(offsets))
        self._in_group().check_not_replaced(self._log.refresh())

    def _commit(self, offsets: Offsets | None = None, *, durable: bool | None = None) -> None:
        member, state = self._in_group(), self._log.refresh()
        if offsets is None:
            told = self._auto_commit or self._assignment.calls_back
            if self._uncommitted.was_robbed and not told:
                raise self._uncommitted.fenced()
            self._uncommitted.gone.clear()  # the caller commits what is left: others come again
        try:
            self._assignment.commit(member, state, offsets, durable=durable)
        except FencedError:
            self._taking.call_in()  # the next call looks which partitions are its own
            raise

    @alone_or_called_back
    def _offsets_to_commit(self, offsets: Offsets | None = None) -> Unit:
        """Return what commits positions, or given offsets, in a transaction."""
        if self._auto_commit:
            raise IllegalStateError(
                "this consumer has auto_commit, which commits also when a transaction is aborted: "
                "open it without auto_commit to commit its offsets in transactions"
            )
        member, state = self._in_group(), self._log.refresh()
        if self._uncommitted.gone:
            raise self._uncommitted.fenced()
        if offsets is None:
            offsets = self._assignment.uncommitted_positions(state)
        self._assignment.check_topics(state, offsets)
        return member.unit(state, offsets, self._uncommitted.owned(offsets))

    def _in_group(self) -> GroupMember:
        if self._member is None:
            raise IllegalStateError(
                "commit needs a group, and this consumer has none: open it with one"
            )
        return self._member

    @alone_or_called_back
    def committed(self) -> dict[str, dict[int, int]]:
        """Return the group's committed offsets for the partitions that are read now.

        `{topic: {partition: offset}}`; a partition without a commit is left out.
        """
        member, state = self._in_group(), self._assignment.refresh()
        return member.committed(state, by_topic(self._assignment.partitions()))

    @alone_or_called_back
    def lag(self) -> dict[str, dict[int, int]]:
        """Return how many records each partition still has to hand out: `{topic: {partition: n}}`.

        KmqWarning when damage to the log may hide more.
        """
        state, positions = self._assignment.refresh(), self._assignment.positions()
        warn_of_doubtful_ends(state, map(state.topic, positions), depth=2)
        return {
            topic: {n: state.topic(topic).partition(n).lag(at) for n, at in numbers.items()}
            for topic, numbers in positions.items()
        }

    @alone_or_called_back
    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue with this offset of a partition; OffsetOutOfRangeError outside the log.

        Nothing is committed by it. IllegalStateError for a partition that isn't read.
        """
        state = self._assignment.refresh()
        state.topic(topic)  # NotFoundError, also for what can't be a name
        number, target = checked_partition(partition), checked_offset(offset)
        check_offsets(state, {topic: {number: target}})
        self._assignment.seek(lambda _: target, {topic: [number]})

    @alone_or_called_back
    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Continue with the first record of these partitions, or of all that are read."""
        state = self._assignment.refresh()
        self._assignment.seek(lambda each: _part(state, each).first, partitions)

    @alone_or_called_back
    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Skip what is there, in these partitions or in all that are read."""
        state = self._assignment.refresh()
        self._assignment.seek(lambda each: _part(state, each).end, partitions)

    @alone_or_called_back
    def seek_to_time(self, when: datetime) -> None:
        """Continue with the first record at or after `when` in each partition, or at its end.

        `when` is a datetime with a time zone.
        """
        instant = to_timestamp(when, "when")
        state = self._assignment.refresh()
        reader = ChunkReader(self._log.files)

        def offset_of(each: TopicPartition) -> int:
            found = first_offset_since(state.topic(each.topic), each.partition, instant, reader)
            return _part(state, each).end if found is None else found

        self._assignment.seek(offset_of, None)

    @alone_or_called_back
    def pause(self, partitions: Partitions | None = None) -> None:
        """Hand out nothing of these partitions, or of all that are read, until `resume`."""
        self._assignment.refresh()
        self._assignment.pause(partitions)

    @alone_or_called_back
    def resume(self, partitions: Partitions | None = None) -> None:
        """Continue with paused partitions: these, or all."""
        self._assignment.refresh()
        self._assignment.resume(partitions)

    # --- lifetime -----------------------------------------------------------------------

    def _begin(self) -> None:
        if self._parents:
            raise IllegalStateError(
                "this member of a group belongs to the parent process: open another one here"
            )
        self._taking.go_back()
        if self._auto_commit and self._assignment.places() != self._auto_committed:
            try:
                self._commit(durable=False)  # nobody waits for it: the next sync makes it durable
            except FencedError as lost:
                _LOGGER.warning("records that were handed out may come again: %s", lost)
            self._auto_committed = self._assignment.places()

    def close(self) -> None:
        """Leave the group and close; from any thread, and a second call does nothing.

        With `auto_commit` this commits what was handed out, but not in an `except` or `finally`
        that an exception led to.
        """
        self.__exit__(None, sys.exception(), None)

    def _calls_back(self) -> bool:
        return self._assignment.calls_back

    def _wake(self) -> None:
        self._log.wake_waiters()

    def _end(self, *, commit: bool) -> None:
        try:
            if commit:
                self._taking.go_back()
                self._commit()
        finally:
            self._assignment.revoke()

    def _leave(self) -> None:
        self._assignment.fetcher.let_go()
        if self._watch is not None:
            self._watch.leave()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self._parents:
            self._close(commit=self._auto_commit and error is None)


def _part(state: StoreState, each: TopicPartition) -> Partition:
    return state.topic(each.topic).partition(each.partition)
