"""Members that take their partitions in order: what they can't handle becomes a dead letter.

They are the client's own orderly consumers, but for some threads: the one that reads also calls the
listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kmq_spark.client.consuming.subscription import Partitions
from kmq_spark.client.orderly import listening, reading
from kmq_spark.client.orderly.reader import Reader
from kmq_spark.client.orderly.reading import Reading
from kmq_spark.client.orderly.rules import OrderlyContext, OrderlySettings, OrderlyStatus
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.record_values import records_of
from kmq_storage.errors import (
    CorruptionError,
    FencedError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage.format.manifest import Key
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import letters_topic
from kmq_storage.waking import Flag
from tests.simulation.group_world import GroupWorld, Sharing
from tests.simulation.sharing import GROUP, Sharer
from tests.simulation.world import WatchedLog

_LETTERS = letters_topic(GROUP)
#: Every so many records is one that can't be handled.
_POISON = 3
_TURNS = (8, 30)
_NOTHING = Unit(())
_TOPICS = (("orders", "audit"), ("orders", "profiles"), ("orders",))
_AUTO = (OrderlyStatus.SUCCESS,)
#: After what the thread of an orderly consumer goes on.
_TRIES_AGAIN = (UnavailableError, FencedError, OffsetOutOfRangeError)
_BY_HAND = (OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT, OrderlyStatus.ROLLBACK)


def is_poisonous(offset: int) -> bool:
    """Whether a record can't be handled."""
    return offset % _POISON == 0


class DueRuns:
    """As `Runs`; the thread that reads runs what is due."""

    def __init__(self, run: Callable[[Any], None], monotonic: Callable[[], float]) -> None:
        self._run = run
        self._monotonic = monotonic
        self._due: list[tuple[float, Any]] = []

    def submit(self, what: object, delay: float = 0.0) -> None:
        """Run this after `delay` seconds."""
        self._due.append((self._monotonic() + delay, what))

    def run_due(self) -> None:
        """Run what is due."""
        now = self._monotonic()
        due = [what for when, what in self._due if when <= now]
        self._due = [each for each in self._due if each[0] > now]
        for what in due:
            self._run(what)

    def close(self) -> None:
        """Run nothing more."""
        self._due.clear()


class OrderlyReader(Reader):
    """One of a group whose members are all sticky, so that partitions move one by one."""

    def __init__(self, log: CommitLog, settings: Any) -> None:
        timeout = GroupWorld.timeout
        super().__init__(log, replace(settings, assignor="sticky", session_timeout=timeout))


class WatchedReading(Reading):
    """Tells its member which partitions come and go, and what it commits."""

    def __init__(self, sharer: OrderlySharer, log: CommitLog, settings: OrderlySettings) -> None:
        super().__init__(log, GROUP, sharer.listen, settings, Flag())
        self._sharer = sharer
        self._commit_with = self._reader.commit_with
        self._reader.commit_with = self._told_of  # type: ignore[method-assign]

    def turn(self) -> None:
        """What its threads do, once."""
        self._read()
        runs: Any = self._listening._runs
        runs.run_due()

    def end(self) -> None:
        """Leave the group."""
        self._leave()

    def _assigned(self, partitions: Partitions) -> None:
        super()._assigned(partitions)
        queues = [self.queues[place] for place in reading._places(partitions)]
        epoch = self._reader._in_group().place.epoch
        self._sharer.begin_with(self._log, epoch, {each.key: each.begun for each in queues})

    def _lost(self, partitions: Partitions) -> None:
        keys = [self.queues[place].key for place in reading._places(partitions)]
        super()._lost(partitions)
        self._sharer.lost(keys)

    def _told_of(self, offsets: Mapping[Key, int], unit: Unit = _NOTHING) -> None:
        try:
            self._commit_with(offsets, unit)
        except FencedError:
            self._sharer.count("fenced")
            raise
        self._sharer.finished(offsets, buries=bool(unit.entries))


class OrderlySharer(Sharer):
    """A member that goes on behind a record when it handled it, or when its letter is stored."""

    _log: WatchedLog

    def __init__(self, world: Sharing, number: int) -> None:
        super().__init__(world, number)
        self._most = self._rng.randrange(2)
        self._settings = OrderlySettings(
            max_reconsume_times=self._most,
            suspend_current_queue_time=0.01,
            consume_batch_max_size=self._rng.randrange(1, 4),
        )
        #: Where the next batch of a partition begins: here, or with the next record behind.
        self._expected: dict[Key, tuple[int, int | None]] = {}
        #: The first record that was handled and waits for a COMMIT.
        self._kept: dict[Key, int] = {}

    # --- its life -----------------------------------------------------------------------

    def _take_part(self, log: WatchedLog) -> None:
        self._log = log
        consumer: WatchedReading | None = None
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                if consumer is None:
                    consumer = self._begun(log)
                consumer.turn()
            except CorruptionError:
                if not self._world.machine.failed:
                    raise
            except _TRIES_AGAIN:
                self.count("again")
            if self._rng.random() < 0.3:
                self._world.scheduler.stall()  # perhaps for longer than the others wait
            self._world.scheduler.pause(0.02, stay=0.0)
        if consumer is not None and self._rng.random() < 0.7:
            consumer.end()

    def _begun(self, log: CommitLog) -> WatchedReading:
        consumer = WatchedReading(self, log, self._settings)
        consumer.begin(self._rng.choice(_TOPICS))
        return consumer

    # --- what its consumer tells --------------------------------------------------------

    def begin_with(self, log: CommitLog, epoch: int, begins: Mapping[Key, int]) -> None:
        """It reads these from now on."""
        with self._world.scheduler.judging():
            self.gained(log.state, epoch, begins)
        self.count("joined")
        for key, begin in begins.items():
            self._expected[key] = (begin, None)
            self._kept.pop(key, None)

    def finished(self, offsets: Mapping[Key, int], *, buries: bool) -> None:
        """This commit was answered."""
        self.committed(self._log, offsets)
        self.count("buried", buries)
        for key in offsets if buries else ():
            self._kept.pop(key, None)  # a letter finishes what comes before it, too

    def listen(self, records: list[Record], context: OrderlyContext) -> OrderlyStatus:
        """Handle what can be handled."""
        with self._world.scheduler.judging():
            return self._handled(records, context)

    def _handled(self, records: list[Record], context: OrderlyContext) -> OrderlyStatus:
        key = (self._world.topics[context.topic], context.partition)
        first, end = records[0].offset, records[-1].offset + 1
        self._check_order(key, first)
        self.read(key, end)
        if self._rng.random() < 0.2:
            self._world.scheduler.stall()  # somebody else may own it by then
        if any(is_poisonous(each.offset) for each in records):
            exhausted = all(count >= self._most for count in context.reconsume_times)
            self._expected[key] = (first, end if exhausted else None)
            return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        context.auto_commit = self._rng.random() < 0.5
        answer = self._rng.choice(_AUTO if context.auto_commit else _BY_HAND)
        if answer is OrderlyStatus.ROLLBACK:
            self._expected[key] = (self._kept.pop(key, first), None)
        else:
            self._expected[key] = (end, None)
            self._kept.setdefault(key, first)
        if context.auto_commit or answer is OrderlyStatus.COMMIT:
            self._kept.pop(key, None)
        return answer

    def _check_order(self, key: Key, first: int) -> None:
        """It comes behind what was handled, and behind nothing that wasn't."""
        wanted, otherwise = self._expected[key]
        assert first >= wanted, "a record came again that was handled"
        if first in (wanted, otherwise):
            return
        topic = self._log.state.topic_by_id(key[0])
        assert topic is not None
        gone = topic.settings.cleanup == "compact" or topic.partition(key[1]).start >= first
        assert gone, f"a record was passed over: {first} came, not {wanted} or {otherwise}"


class OrderlyWorld(GroupWorld):
    """A world whose members take their partitions in order."""

    member = OrderlySharer
    limits = (
        *GroupWorld.limits,
        (listening, "Runs", DueRuns),
        (reading, "Reader", OrderlyReader),
        (reading, "_COMMIT_SECONDS", 0.02),
    )

    def finish(self) -> None:
        """Check what is left; and that each record that couldn't be handled has one letter."""
        super().finish()
        log = self.open()
        state = log.refresh()
        found = [
            (letter.properties["dead_letter_topic"], *_origin(letter))
            for letter in _all_records(log, state)
        ]
        assert len(found) == len(set(found)), f"a dead letter is there twice: {sorted(found)}"
        for topic_id, offsets in state.group_offsets(GROUP).items():
            topic = state.topic_by_id(topic_id)
            assert topic is not None
            for number, committed in offsets.items():
                mine = {each[2] for each in found if each[:2] == (topic.name, number)}
                start = topic.partition(number).start
                wanted = {o for o in range(start, committed) if is_poisonous(o)}
                lost = wanted - mine if topic.settings.cleanup == "delete" else set()
                assert not lost, "a record was passed over without a letter"
                assert not mine or max(mine) < committed, "a letter without its offset"


def _origin(letter: Record) -> tuple[int, int]:
    facts = letter.properties
    return facts["dead_letter_partition"], facts["dead_letter_offset"]


def _all_records(log: CommitLog, state: StoreState) -> list[Record]:
    topic = state.find_topic(_LETTERS)
    if topic is None:
        return []
    part = topic.partition(0)
    span = (part.start, part.end)
    parts = scan(log, ChunkReader(log.files), topic, 0, span, batch_rows=100)
    return [record for part in parts for record in records_of(part)]
