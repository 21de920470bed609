"""Fetching: slices of the assigned partitions in turn, the position of each, what is in hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kmq_spark.client.consuming.hand import ANY, Hand, Holding
from kmq_spark.client.consuming.subscription import TopicPartition
from kmq_spark.client.consuming.turns import Turns
from kmq_spark.errors import OffsetOutOfRangeError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.few_records import FewRecords, Part, few_records
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition, Topic, out_of_range

_LOGGER = logging.getLogger(__name__)
_SCAN_ROWS = 65_536
#: Of a partition for which neither a commit, a seek nor the reset policy gives a position.
NO_POSITION = -1


class Fetcher:
    """Reads partitions from their positions on; one thread at a time."""

    def __init__(self, log: CommitLog, reset: str) -> None:
        self._log = log
        self._reset = reset
        #: What was read and is not handed out yet.
        self.holding = Holding()
        self._reader = ChunkReader(log.files)
        #: The next offset to hand out, per assigned partition.
        self.positions: dict[TopicPartition, int] = {}
        self._turns = Turns()
        self.paused: set[TopicPartition] = set()
        #: Scans that are not at their end yet, with that end.
        self._scans: dict[TopicPartition, tuple[Iterator[Slice], int]] = {}
        self._returned: dict[TopicPartition, Part] = {}
        #: What was read last, if that was few records.
        self._few: tuple[Topic, int, int, int] | None = None
        #: Whether the last look found nothing, so that only new commits are a reason to look again.
        self.drained = False

    def add(
        self, partition: TopicPartition, position: int | None, *, came_later: bool = False
    ) -> None:
        """Read this partition too, from a position, or from where the reset policy says.

        A policy of "none" gives no position: reading is refused until a seek. A partition that was
        made after its reader began is all new: "latest" is before its first record.
        """
        if position is None:
            latest = self._reset == "latest"
            position = self._reset_position(partition, first=latest and came_later)
        self.positions[partition] = position
        self._turns.wake(partition)
        self.drained = False

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading this partition, and drop what is in hand of it."""
        hand = self.holding.hand
        if hand.source is not None and hand.source[0] == partition:
            self.holding.hand = Hand()
        self.positions.pop(partition, None)
        self.paused.discard(partition)
        self._turns.give_up()
        self._forget(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from another offset."""
        self.drained = False
        self._forget(partition)
        self.positions[partition] = offset
        self._turns.wake(partition)

    def unpaused(self) -> Iterator[TopicPartition]:
        """The partitions of which records are handed out."""
        return (each for each in self.positions if each not in self.paused)

    def read_again(self) -> FewRecords | None:
        """The last few records that were read without Arrow, if they can be."""
        return None if self._few is None else few_records(self._reader, *self._few)

    def go_back(self) -> None:
        """Begin where the last call began, unless it handed out what it took."""
        for partition, offset in self.holding.before.items():
            if partition in self.positions:
                self.seek(partition, offset)
        self.holding.before = {}

    def place_in_hand(self) -> tuple[TopicPartition, int] | None:
        """The partition of which records are in hand, and the offset of the next one."""
        hand = self.holding.hand
        if hand.source is None or hand.source[0] not in self.positions:
            return None
        partition, part = hand.source
        return partition, part.offset_of(hand.taken)

    def put_back(self) -> None:
        """Give records in hand that were not handed out back to their partition."""
        place, empty = self.place_in_hand(), Hand()
        if place is not None:
            self.seek(place[0], place[1])
        self.holding.hand = empty  # no call comes in between: it could be interrupted

    def use_up(self) -> Hand:
        """Drop what is in hand, since the call takes all of it: its memory is soon used again."""
        place, empty = self.place_in_hand(), Hand()
        if place is not None:
            self.holding.before[place[0]] = place[1]
        self.holding.hand = empty  # no call comes in between: it could be interrupted
        return empty

    def let_go(self) -> None:
        """Keep no file open or mapped: reading has ended."""
        self._scans, self._returned, self._few = {}, {}, None
        self.holding.hand, self.holding.before = Hand(), {}
        self._reader = ChunkReader(self._log.files)

    def _forget(self, partition: TopicPartition) -> None:
        self._scans.pop(partition, None)
        self._returned.pop(partition, None)

    def next_part(self, rows: int, size: int = ANY) -> tuple[TopicPartition, Part] | None:
        """Return the next records of the partition whose turn it is; None when there are none.

        At most `rows`, and about `size` bytes, but at least one record.
        """
        state = self._log.state
        self.drained = False
        self._turns.look(state, self.positions)
        passed: list[TopicPartition] = []
        for partition in self._turns.awake:
            if partition in self.paused:
                continue
            self.holding.before.setdefault(partition, self.positions[partition])
            try:
                found = self._returned.pop(partition, None) or self._scan(state, partition)
            except Exception:  # the others have their turns before the error is raised again
                self._pass(state, passed)
                self._turns.end(partition)
                self.drained = True  # new records come before the same error
                raise
            if found is None:
                passed.append(partition)
                continue
            self._pass(state, passed)
            fitting = rows if size == ANY else min(rows, _rows_within(found, size))
            if found.rows > fitting:
                found, self._returned[partition] = found.cut(fitting)
            self.positions[partition] = found.end
            self._turns.end(partition)
            return partition, found
        self._pass(state, passed)
        self.drained = True
        return None

    def was_cut(self, partition: TopicPartition) -> bool:
        """Whether the last part of this partition was cut, and goes on with its next turn."""
        return partition in self._returned

    def _pass(self, state: StoreState, partitions: list[TopicPartition]) -> None:
        """Don't ask these, which have nothing now, before new commits: there may be thousands."""
        for each in partitions:
            topic = state.topic_by_id(each.topic_id)
            part = None if topic is None else topic.partition(each.partition)
            if part is not None and self.positions[each] >= part.end:
                self._turns.rest(each, part)
            else:
                self._turns.end(each)

    def _scan(self, state: StoreState, partition: TopicPartition) -> Part | None:
        topic = state.topic_by_id(partition.topic_id)
        if topic is None:
            return None
        part = topic.partition(partition.partition)
        for _ in range(2):
            position = self._position_inside(topic, part, partition)
            going_on = self._scans.pop(partition, None)
            if position >= part.end and going_on is None:
                if state.broken or part.doubt:
                    state.check_end(topic.name, partition.partition)
                return None
            if going_on is None:
                self._few = (topic, partition.partition, position, part.end)
                few = few_records(self._reader, *self._few)
                if few is not None:
                    return few
            scan_on, end = going_on or self._begun(topic, part, partition)
            found = next(scan_on, None)
            while found is not None and found.rows == 0:  # compaction left none
                self.positions[partition] = found.end
                found = next(scan_on, None)
            if found is not None:
                if found.end < end:
                    self._scans[partition] = scan_on, end
                return found
        return None

    def _begun(
        self, topic: Topic, part: Partition, partition: TopicPartition
    ) -> tuple[Iterator[Slice], int]:
        span = (self.positions[partition], part.end)
        number = partition.partition
        slices = scan(self._log, self._reader, topic, number, span, batch_rows=_SCAN_ROWS)
        return slices, part.end

    def _position_inside(self, topic: Topic, part: Partition, partition: TopicPartition) -> int:
        """The position, reset when it fell out of the log."""
        position = self.positions[partition]
        if part.first <= position <= part.end:
            return position
        if position == NO_POSITION:
            raise _unplaced(topic.name, partition.partition, part)
        error = out_of_range(topic.name, partition.partition, position, part)
        if self._reset == "none":
            raise error
        self.seek(partition, self._reset_position(partition))
        _LOGGER.warning("%s; going on at %s", error, self._reset)
        return self.positions[partition]

    def _reset_position(self, partition: TopicPartition, *, first: bool = False) -> int:
        if self._reset == "none":
            return NO_POSITION
        topic = self._log.state.topic_by_id(partition.topic_id)
        assert topic is not None, "only partitions of live topics are added"
        part = topic.partition(partition.partition)
        return part.first if first or self._reset == "earliest" else part.end


def _rows_within(part: Part, size: int) -> int:
    """How many of its records have about so many bytes; at least one."""
    return part.rows if part.size <= size else max(part.rows * size // part.size, 1)


def _unplaced(topic: str, number: int, part: Partition) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{topic}-{number}: nothing says where to begin (there is no committed offset), and "
        "auto_offset_reset is 'none'; seek, or commit an offset for the group",
        topic=topic,
        partition=number,
        start=part.first,
        end=part.end,
    )
