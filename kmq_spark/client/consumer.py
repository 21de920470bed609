"""The consumer: records one by one, in lists or as Arrow; alone or as a group's member."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Self

import pyarrow as pa

from kmq_spark.client.arguments import (
    checked_count,
    checked_offset,
    checked_offsets,
    checked_partition,
    checked_timeout,
)
from kmq_spark.client.assignment import Assignment
from kmq_spark.client.record import Record
from kmq_spark.client.subscription import (
    Listener,
    Partitions,
    Subscription,
    TopicPartition,
    assignment_of,
    by_topic,
    subscription_of,
)
from kmq_spark.client.topic_tables import table_of
from kmq_spark.client.values import to_timestamp
from kmq_spark.errors import ClosedError, IllegalStateError, InvalidRequestError, KmqError
from kmq_storage.groups import Membership, check_inside, committed_offsets, offset_entries
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Partition
from kmq_storage.names import check_name
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.topics import first_offset_since

_RESETS = ("earliest", "latest", "none")

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The options of a consumer."""

    group: str | None = None
    name: str | None = None
    auto_offset_reset: str = "earliest"
    auto_commit: bool = False

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in _RESETS:
            raise InvalidRequestError(
                f"auto_offset_reset must be one of {', '.join(_RESETS)}, "
                f"not {self.auto_offset_reset!r}",
                option="auto_offset_reset",
            )
        if self.auto_commit and self.group is None:
            raise InvalidRequestError("auto_commit needs a group", option="auto_commit")


class Consumer:
    """Reads topics; one thread at a time, others get IllegalStateError (`close` excepted).

    A group's member starts at the group's committed offsets. Offsets mean "next to read".
    """

    def __init__(self, log: CommitLog, settings: ConsumerSettings) -> None:
        self._log = log
        self._settings = settings
        self._busy = threading.Lock()
        self._auto_committed: dict[str, dict[int, int]] = {}
        self._closed = False
        #: True in a forked child, for a group's member.
        self._parents = False
        self._membership = None if settings.group is None else _join(log, settings)
        self._assignment = Assignment(
            log, settings.auto_offset_reset, settings.group, self._tell_group
        )
        reopen_in_child(self)

    def after_fork_in_child(self) -> None:
        """A group's member stays the parent's; others go on by themselves."""
        self._busy = threading.Lock()
        if self._membership is not None:
            self._parents = True
            self._assignment.hand = iter(())

    def _tell_group(self, partitions: Partitions) -> None:
        if self._membership is not None:
            self._membership.tell_assignment(partitions)

    # --- what to read -------------------------------------------------------------------

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

        NotFoundError for an unknown topic. The callbacks get `{topic: [partitions]}`.
        """
        with self._alone():
            wanted = subscription_of(self._log.refresh(), topics, pattern)
            self._assignment.follow(
                replace(wanted, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            )

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions."""
        with self._alone():
            self._assignment.follow(assignment_of(self._log.refresh(), partitions))

    def unsubscribe(self) -> None:
        """Read nothing."""
        with self._alone():
            self._assignment.follow(Subscription())

    def assignment(self) -> dict[str, list[int]]:
        """The partitions that are read now, per topic."""
        with self._alone():
            self._assignment.refresh()
            return by_topic(self._assignment.partitions())

    # --- records ------------------------------------------------------------------------

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """The next record, or None when there is none within `timeout` seconds."""
        if not self._busy.acquire(blocking=False):
            raise _concurrent_use()
        try:
            if self._settings.auto_commit:
                self._check_usable()
                self._commit_handed_out()
            record = next(self._assignment.hand, None)
            if record is None and self._fill_hand(timeout):
                record = next(self._assignment.hand)
            return record
        finally:
            self._busy.release()

    def consume(self, max_records: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """What is there, at most `max_records`; waits up to `timeout` seconds for the first."""
        checked_count("max_records", max_records)
        with self._alone():
            records = list(islice(self._assignment.hand, max_records))
            with self._handing_out(records):
                while len(records) < max_records and self._fill_hand(0.0 if records else timeout):
                    records += islice(self._assignment.hand, max_records - len(records))
            return records

    def consume_arrow(self, max_rows: int = 65_536, timeout: float | None = 1.0) -> pa.Table | None:
        """The same as one table with the columns of `Store.read`, or None when nothing came.

        InvalidRequestError over topics of different schemas.
        """
        checked_count("max_rows", max_rows)
        timeout = checked_timeout(timeout)
        with self._alone():
            self._assignment.put_back()
            self._assignment.check_one_schema()
            slices: list[Slice] = []
            rows = 0
            with self._handing_out(slices):
                while rows < max_rows:
                    wait = 0.0 if rows else timeout
                    found = self._assignment.next_slice(max_rows - rows, wait, self._stopped)
                    if found is None:
                        break
                    slices.append(found[1])
                    rows += found[1].batch.num_rows
                self._check_usable()
            try:
                return table_of(slices) if slices else None
            except BaseException:  # interrupted, or a schema that came in between
                self._assignment.give_back(slices)
                raise

    @contextmanager
    def _handing_out(self, gathered: Sequence[Record | Slice]) -> Iterator[None]:
        """Nothing is passed over by an error: what was gathered before it is handed out first.

        The next call meets the error again. After an interruption it all is read anew.
        """
        try:
            yield
        except KmqError:
            if not gathered:
                raise
        except BaseException:
            self._assignment.give_back(gathered)
            raise

    def __iter__(self) -> Iterator[Record]:
        """Records as they come, until the consumer is closed."""
        while True:
            try:
                record = self.poll(timeout=None)
            except ClosedError:
                return
            if record is not None:
                yield record

    def _fill_hand(self, timeout: float | None) -> bool:
        self._check_usable()
        filled = self._assignment.fill_hand(checked_timeout(timeout), self._stopped)
        self._check_usable()
        return filled

    def _stopped(self) -> bool:
        return self._closed

    # --- positions ----------------------------------------------------------------------

    def position(self) -> dict[str, dict[int, int]]:
        """The next offset that each partition hands out."""
        with self._alone():
            return self._assignment.current_positions()

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions of everything handed out, or the given offsets, for the group.

        OffsetOutOfRangeError outside the log, FencedError when the group moved on.
        """
        with self._alone():
            if offsets is None:
                self._commit(self._assignment.committable_positions(), durable=True)
            else:
                self._commit(checked_offsets(offsets), durable=True)

    def _commit(self, offsets: Offsets, *, durable: bool) -> None:
        group, membership = self._settings.group, self._membership
        if group is None or membership is None:
            raise IllegalStateError("commit needs a group; this consumer has none")
        state = self._assignment.refresh()
        entries = offset_entries(state, group, offsets, generation=membership.generation)
        if entries:
            self._log.commit([Unit(entries)], durable=durable)

    def _commit_handed_out(self) -> None:
        """For auto_commit: not synced, since nobody is told; the next sync takes it along."""
        if self._assignment.positions() != self._auto_committed:
            self._commit(self._assignment.committable_positions(), durable=False)
            self._auto_committed = self._assignment.positions()

    def committed(self) -> dict[str, dict[int, int]]:
        """What the group committed, for the partitions that are read now."""
        with self._alone():
            if self._settings.group is None:
                raise IllegalStateError("committed needs a group; this consumer has none")
            found = committed_offsets(self._assignment.refresh(), self._settings.group)
            assigned = by_topic(self._assignment.partitions())
            return {
                topic: {n: offset for n, offset in found[topic].items() if n in numbers}
                for topic, numbers in assigned.items()
                if topic in found
            }

    def lag(self) -> dict[str, dict[int, int]]:
        """How many records each partition has that were not handed out."""
        with self._alone():
            state = self._assignment.refresh()
            return {
                topic: {n: state.topic(topic).partition(n).end - at for n, at in numbers.items()}
                for topic, numbers in self._assignment.positions().items()
            }

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with this offset; OffsetOutOfRangeError outside the log."""
        with self._alone():
            place = {topic: {checked_partition(partition): checked_offset(offset)}}
            check_inside(self._assignment.refresh(), place)
            self._assignment.seek(lambda _: offset, {topic: [partition]})

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Go on with the first record of these partitions, or of all."""
        with self._alone():
            state = self._assignment.refresh()
            self._assignment.seek(lambda each: _part(state, each).start, partitions)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Go on with what comes from now on in these partitions, or in all."""
        with self._alone():
            state = self._assignment.refresh()
            self._assignment.seek(lambda each: _part(state, each).end, partitions)

    def seek_to_time(self, when: datetime) -> None:
        """Go on with the first record at or after an instant; at the end where there is none."""
        instant = to_timestamp(when, "when")
        with self._alone():
            state = self._assignment.refresh()
            reader = ChunkReader(self._log.disk)

            def offset_of(each: TopicPartition) -> int:
                found = first_offset_since(state.topic(each.topic), each.partition, instant, reader)
                return _part(state, each).end if found is None else found

            self._assignment.seek(offset_of, None)

    def pause(self, partitions: Partitions | None = None) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`."""
        with self._alone():
            self._assignment.refresh()
            self._assignment.pause(partitions)

    def resume(self, partitions: Partitions | None = None) -> None:
        """Go on with paused partitions, or with all."""
        with self._alone():
            self._assignment.refresh()
            self._assignment.resume(partitions)

    # --- lifetime -----------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise _concurrent_use()
        try:
            self._check_usable()
            if self._settings.auto_commit:
                self._commit_handed_out()
            yield
        finally:
            self._busy.release()

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self._parents:
            raise IllegalStateError("this member of a group belongs to the parent process")

    def close(self) -> None:
        """Leave the group and end; from any thread, again is no error."""
        self._close(commit=self._settings.auto_commit)

    def _close(self, *, commit: bool) -> None:
        if self._closed or self._parents:
            return
        try:
            if commit and self._busy.acquire(blocking=False):
                try:
                    self._commit(self._assignment.committable_positions(), durable=True)
                finally:
                    self._busy.release()
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._log.wake_waiters()
        with self._busy:
            self._assignment.revoke()
            if self._membership is not None:
                self._membership.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(commit=self._settings.auto_commit and kind is None)


def _join(log: CommitLog, settings: ConsumerSettings) -> Membership:
    assert settings.group is not None, "only a group has members"
    check_name("group", settings.group)
    check_writable(log.disk)  # members and offsets are commits
    name = settings.name or f"member-{log.environment.new_uuid().hex[:12]}"
    return Membership(log, settings.group, check_name("member", name))


def _part(state: StoreState, each: TopicPartition) -> Partition:
    return state.topic(each.topic).partition(each.partition)


def _concurrent_use() -> IllegalStateError:
    return IllegalStateError("a consumer is used by one thread at a time; another one is in it")
