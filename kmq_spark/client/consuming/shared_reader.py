"""Reading a topic of one partition from many places: each record goes to one call of a group.

A group has no members here, only its offset. A reader first moves it on, by compare-and-swap,
and has the record then; so there is nobody to wait for, to plan or to find dead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kmq_spark.client.records.record import Record
from kmq_spark.client.records.record_values import records_of
from kmq_spark.errors import DataLossError, FencedError, InvalidRequestError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.groups.administration import check_idle
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import check_name
from kmq_storage.objects.fork import reopen_in_child

#: How many records are read ahead, for all groups of a reader.
_ROWS_IN_HAND = 64


def single_partition(state: StoreState, name: str) -> Topic:
    """The topic of this name; NotFoundError, or InvalidRequestError when it has several."""
    topic = state.topic(name)
    if topic.partitions != 1:
        raise InvalidRequestError(
            f"topic {name} has {topic.partitions} partitions, and one is wanted here: use "
            "`store.producer` and `store.consumer`, or another topic",
            topic=name,
            partitions=topic.partitions,
        )
    return topic


@dataclass(frozen=True, slots=True)
class _Seen:
    """A group at one moment."""

    generation: int
    topic_id: bytes
    #: The offset of its next record; None when it is not registered.
    place: int | None
    #: Whether it has, or had, members; a reader here is none, and moves it without live ones only.
    has_members: bool


class SharedReader:
    """Reads one topic for any number of groups. Safe for any number of threads and processes."""

    def __init__(self, log: CommitLog, topic: str) -> None:
        single_partition(log.refresh(), topic)
        self._log = log
        self._topic = topic
        self._after_fork()
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Make new locks: threads of the parent may have held the old ones."""
        self._reader = ChunkReader(self._log.files)
        #: Held while a thread reads.
        self._reading = threading.Lock()
        #: The records that were read last, by offset, and the id of their topic.
        self._hand: tuple[bytes, dict[int, Record]] = (b"", {})

    def end(self) -> int:
        """The offset of the record that is sent next."""
        return single_partition(self._log.refresh(), self._topic).parts[0].end

    def register(self, group: str) -> None:
        """Make a group that begins at the first record; one that exists stays where it is.

        IllegalStateError when it has live members, to which its partitions belong.
        """
        check_idle(self._log, check_name("group", group))
        while True:
            seen = self._seen(group)
            if seen.place is not None or self._move(seen, group, self._start()):
                return

    def next_record(self, group: str, seconds: float) -> Record | None:
        """Return the next record of a group; None without one in time, and for an unknown group.

        The group is past the record when this returns, and also when the process is killed just
        before. IllegalStateError while it has live members. DataLossError, once for a group, where
        a repair cut records out; the group is behind them then.
        """
        record = self._take(self._log.state, group)
        now = self._log.environment.monotonic
        deadline = now() + seconds
        while record is None and self._seen(group).place is not None:
            state = self._log.refresh()
            lsn = state.lsn
            record = self._take(state, group)
            left = deadline - now()
            if record is not None or left <= 0:
                break
            self._log.wait(lsn, left)
        return record

    def _take(self, state: StoreState, group: str) -> Record | None:
        """Return the next record that a state knows, for the reader that moves on first.

        Nobody seeks here: the first reader to meet a loss moves on behind it, and gets the error.
        """
        while True:
            seen = self._seen(group)
            if seen.has_members:
                check_idle(self._log, group)
            try:
                record = None if seen.place is None else self._record(state, seen.place)
            except DataLossError as error:
                if self._move(seen, group, error.context["end"]):
                    raise
                continue
            if record is None or self._move(seen, group, record.offset + 1):
                return record

    def _seen(self, group: str) -> _Seen:
        state = self._log.written_state()
        topic = single_partition(state, self._topic)
        known = state.group(group) if isinstance(group, str) else Group()
        # Other threads move the state on meanwhile: what is read first must be the older one.
        generation = known.generation
        place = known.offsets.get(topic.id, {}).get(0)
        has_members = bool(known.plan.members or known.client)
        if place is not None:
            place = max(place, topic.parts[0].first)
        return _Seen(generation, topic.id, place, has_members)

    def _start(self) -> int:
        return single_partition(self._log.written_state(), self._topic).parts[0].first

    def _move(self, seen: _Seen, group: str, place: int) -> bool:
        """Give a group its place, unless another reader did since it was seen.

        Each move is a member of its own, which begins a generation: of two that follow the same
        one, the second is refused. It does not wait for the disk, so after a power failure records
        may come again.
        """
        member = self._log.environment.new_uuid().hex
        entries = (
            GroupOffsetsEntry(group, -1, seen.topic_id, ((0, place),)),
            GroupEntry(group, seen.generation + 1, member, "", {}),  # last, as `_seen` needs it
        )
        try:
            self._log.commit([Unit(entries)], durable=False)
        except FencedError:
            return False
        return True

    def _record(self, state: StoreState, place: int) -> Record | None:
        """The first record at or after a place, of those that a state knows."""
        topic = state.find_topic(self._topic)
        if topic is None:
            return None
        with self._reading:
            topic_id, records = self._hand
            if topic_id != topic.id or place not in records:
                records = self._read(topic, place)
                self._hand = topic.id, records
        return records.get(place) or next(iter(records.values()), None)

    def _read(self, topic: Topic, place: int) -> dict[int, Record]:
        span = (place, topic.parts[0].end)
        for part in scan(self._log, self._reader, topic, 0, span, batch_rows=_ROWS_IN_HAND):
            if part.rows:  # compaction may have left none
                return {record.offset: record for record in records_of(part)}
        return {}
