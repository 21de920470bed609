"""A member of a group that is the client's own consumer, with its thread that watches the others.

It is called in every way, also by who gives up a call, and its callbacks commit, or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.consuming.settings import ConsumerSettings
from kmq_spark.client.consuming.subscription import Partitions
from kmq_spark.client.sending.beside import GroupOffsets
from kmq_storage.errors import (
    CorruptionError,
    FencedError,
    IllegalStateError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.groups.membership import version_of
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition
from tests.simulation.handed_out import Row, rows_in, rows_of
from tests.simulation.sharing import GROUP, GroupWatch, Sharer, plan_of

if TYPE_CHECKING:
    from tests.simulation.group_world import Sharing
    from tests.simulation.world import WatchedLog

_TURNS = (8, 30)
#: More than it takes to find all others dead.
_LOOKS = 300
_SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ["orders", "audit"]},
    {"pattern": "o"},
    {"topics": ["orders"]},
)
_BY_HAND, _BY_ITSELF, _IN_TRANSACTIONS, _NEVER = range(4)


class Member(Sharer):
    """Reads, and knows what must come next, and what a commit must say."""

    _log: WatchedLog
    _consumer: Consumer

    def __init__(self, world: Sharing, number: int) -> None:
        super().__init__(world, number)
        self._commits = self._rng.choice((_BY_HAND, _BY_HAND, _BY_ITSELF, _IN_TRANSACTIONS))
        self._subscribed = False
        #: Where each partition goes on.
        self._expected: dict[Key, int] = {}
        #: The same of those that were lost during the call that runs.
        self._before: dict[Key, int] = {}
        self._paused: dict[Key, None] = {}
        #: Partitions that it may read on, since it could not be told of their end.
        self._asked: dict[Key, None] = {}
        #: What the next commit must cover.
        self._owed: dict[Key, int] = {}
        #: The highest offsets that it tried to commit.
        self._tried: dict[Key, int] = {}

    def _open(self, log: WatchedLog, name: str | None) -> None:
        assert isinstance(log.watch, GroupWatch)
        self._log, self._watch = log, log.watch
        timeout = self._world.timeout
        settings = ConsumerSettings(
            group=GROUP,
            name=name,
            auto_commit=self._commits == _BY_ITSELF,
            max_poll_interval=3 * timeout,
            session_timeout=timeout,
            assignor="sticky",
        )
        self._consumer = Consumer(log, settings)
        member = self._consumer._in_group()
        commit = member.commit

        def noted(state: StoreState, offsets: Any, *, durable: bool | None) -> None:
            keys = {
                (state.topic(t).id, n): at for t, each in offsets.items() for n, at in each.items()
            }
            self._try(keys)
            commit(state, offsets, durable=durable)
            if durable is None:  # else a crash may take it back
                self.committed(log, keys)

        member.commit = noted  # type: ignore[method-assign]

    def _subscribe(self, how: Mapping[str, Any]) -> None:
        self._subscribed = False
        self._watch.gives_up = self._consumer._in_group().place.id
        try:
            self._consumer.subscribe(
                **how, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._was_lost
            )
        finally:
            self._watch.gives_up = ""
        self._subscribed = True

    @property
    def _epoch(self) -> int:
        return self._consumer._in_group().place.epoch

    # --- its life -----------------------------------------------------------------------

    def _take_part(self, log: WatchedLog) -> None:
        is_static = self._rng.random() < 0.3
        self._open(log, f"s{self._number % 2}" if is_static else None)
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                self._turn()
            except UnavailableError:
                self.count("again")
            except FencedError:
                assert is_static, "only a newer one of its name fences it"
                return
            except CorruptionError:
                if not self._world.machine.failed:
                    raise
            self._world.scheduler.pause(0.02, stay=0.0)
        if self._rng.random() < 0.7:
            self._leave()

    def _turn(self) -> None:
        if not self._subscribed:
            self._subscribe(self._rng.choice(_SUBSCRIPTIONS))
        self._read()
        if self._rng.random() < 0.4:
            self._world.scheduler.stall()  # perhaps for longer than the others wait
        if self._rng.random() < 0.2:
            self._go_elsewhere()
        if self._commits != _BY_ITSELF and self._rng.random() < 0.7:
            self._commit()

    def _leave(self) -> None:
        owed: dict[Key, int] = {}
        try:
            self._called(lambda: rows_of(self._consumer.consume(3, 0.0)))
            owed |= {key: end for key, end in self._owed.items() if key in self._reads}
            self._consumer.close()
        except (UnavailableError, FencedError, OffsetOutOfRangeError, CorruptionError) as error:
            if isinstance(error, CorruptionError) and not self._world.machine.failed:
                raise
            return
        if self._commits == _BY_ITSELF:
            self._check_committed(owed)

    def last(self) -> None:
        """Join when nobody else is there, and take over and read everything."""
        self._commits = _NEVER
        self._open(self._world.open(writes=True), "last")
        self._subscribe({"topics": list(self._world.topics)})
        for _ in range(_LOOKS):
            found = self._called(lambda: rows_of(self._consumer.consume(100, 0.0)))
            plan = plan_of(self._log.state)
            alone = set(plan.members) == {self._epoch}
            if alone and not plan.targets and not found:
                break
            self._world.scheduler.clock += self._world.timeout
            self._world.scheduler.doze(50, 0.0)
        topics = [self._log.state.topic(name) for name in self._world.topics]
        wanted = {(topic.id, n) for topic in topics for n in range(topic.partitions)}
        assert set(self._reads) == wanted, "a partition stayed with who is not there"
        self._check_nothing_is_there({key: self._part(key).end for key in wanted})
        self._world.scheduler.kill()

    # --- reading ------------------------------------------------------------------------

    def _read(self) -> None:
        most, seconds = self._rng.randrange(1, 6), self._rng.choice((0.0, 0.0, 0.05))
        consumer = self._consumer
        match self._rng.randrange(4):
            case 0:
                for _ in range(most):
                    if not self._called(lambda: rows_of([consumer.poll(seconds)])):
                        break
            case 1:
                self._called(lambda: rows_of(consumer.consume(most, seconds)))
            case 2:
                self._called(lambda: rows_in(consumer.consume_arrow(most, seconds)))
            case _:
                consumer._take_records(most, 0.0)  # and nobody gets them
                self.count("given up")

    def _called(self, call: Callable[[], list[Row]]) -> bool:
        """Check what a call hands out; whether that is anything."""
        ends = {key: self._part(key).end for key in self._reads}
        self._before.clear()
        if self._commits != _IN_TRANSACTIONS:  # it was told what was lost during the last one
            self._owed = {key: end for key, end in self._owed.items() if key in self._reads}
        rows = call()
        for row in rows:
            self._take(*row)
        places = self._places()
        # Of one that was lost and came again in the call nobody else can tell what is next.
        self._expected |= {key: places[key] for key in self._before if key in places}
        if not rows:
            self._check_nothing_is_there(ends)
        self._check_looked()
        return bool(rows)

    def _check_looked(self) -> None:
        """It reads what is its own by the plan that it takes for seen, and keeps back nothing."""
        assignment, state = self._consumer._assignment, self._log.state
        plan = plan_of(state)
        if assignment.version == version_of(state, GROUP) and self._epoch in plan.members:
            reads = {each.key for each in assignment.fetcher.positions}
            assert reads == set(plan.owned_by(self._epoch)), "it did not look at the newest plan"
            assert not reads & set(plan.targets), "somebody waits for what it does not release"

    def _take(self, topic: str, partition: int, offset: int, *content: Any) -> None:
        place, key = (topic, partition, offset), (self._world.topics[topic], partition)
        self._world.oracle.check_content(place, *content)
        self._world.oracle.confirm(place, content[0])
        assert key not in self._paused, "a record of a partition that is paused"
        if key in self._asked:
            self._goes_on(key)
        before, known = self._before.get(key, offset + 1), self._expected.get(key, offset + 1)
        if self._follows(key, before, offset):
            self._before[key] = offset + 1
        else:
            is_next = key in self._reads and self._follows(key, known, offset)
            assert is_next, f"{place} came, not {known}, nor {before} as before"
            self._expected[key] = offset + 1
        self.read(key, offset + 1)
        if key not in self._before or self._commits != _BY_ITSELF:  # that leaves out what was lost
            self._owed[key] = offset + 1
        self.count("read")

    def _follows(self, key: Key, expected: int, offset: int) -> bool:
        """Whether this record may come here: behind those before it, none of which is left out."""
        compacted = self._log.state.topic_by_id(key[0]).settings.cleanup == "compact"
        gone = compacted or self._part(key).first >= offset
        return offset == expected or (offset > expected and gone)

    def _check_nothing_is_there(self, ends: Mapping[Key, int]) -> None:
        places = self._places()
        for key, end in ends.items():
            if key in self._reads and key not in self._paused:
                assert places.get(key, -1) >= end, f"records before {end} were there of {key}"

    def _places(self) -> dict[Key, int]:
        return {each.key: at for each, at in self._consumer._assignment.places().items()}

    def _part(self, key: Key) -> Partition:
        topic = self._log.state.topic_by_id(key[0])
        assert topic is not None
        return topic.partition(key[1])

    # --- commits ------------------------------------------------------------------------

    def _commit(self) -> None:
        owed = dict(self._owed)
        try:
            if self._commits == _IN_TRANSACTIONS:
                self._owed.clear()  # if it fails, all of it begins anew
                self._commit_by(self._consumer._offsets_to_commit())
            else:
                self._consumer.commit()
        except FencedError:
            self.count("fenced")
            self._owed.clear()
            return
        except OffsetOutOfRangeError:
            return  # trimmed meanwhile
        self.count("committed")
        self._check_committed(owed)
        self._owed.clear()

    def _commit_by(self, unit: Unit) -> None:
        """As a transaction does."""
        beside = GroupOffsets(self._log)
        beside.add(unit)
        unit = beside.unit()
        entries = [each for each in unit.entries if isinstance(each, GroupOffsetsEntry)]
        if not entries:
            return
        offsets = {(each.topic_id, n): at for each in entries for n, at in each.offsets}
        self._try(offsets)
        self._log.commit([unit])
        beside.note()
        self.committed(self._log, offsets)

    def _try(self, offsets: Mapping[Key, int]) -> None:
        self._tried |= {key: max(at, self._tried.get(key, 0)) for key, at in offsets.items()}

    def _check_committed(self, owed: Mapping[Key, int]) -> None:
        state = self._log.state
        for key, end in owed.items():
            known = self._shared.highest(key, float("inf"))
            there = state.group_offsets(GROUP).get(key[0], {}).get(key[1], 0)
            found = max(known, there, self._part(key).first)
            assert found >= end, f"{key} was read up to {end}, and is committed up to {found}"

    # --- what its consumer tells --------------------------------------------------------

    def _assigned(self, partitions: Partitions) -> None:
        with self._world.scheduler.judging():
            places = self._places()
            begins = {key: places[key] for key in self._keys(partitions)}
            self._expected |= begins
            for key in begins:
                self._paused.pop(key, None)
                self._asked.pop(key, None)
            self.gained(self._log.state, self._epoch, begins)
            self.count("joined")
        if self._rng.random() < 0.2:
            self._consumer.position()

    def _revoked(self, partitions: Partitions) -> None:
        keys = self._keys(partitions)
        with self._world.scheduler.judging():
            try:
                if self._commits == _BY_HAND and self._rng.random() < 0.6:
                    self._commit()
                if self._commits != _NEVER and self._rng.random() < 0.1:
                    raise UnavailableError("what is kept elsewhere can't be written")
            except UnavailableError:
                self._ended(keys)
                self._asked |= dict.fromkeys(keys)  # it is asked again, or they are gone
                raise
            self._ended(keys)
            self.count("released")
        if self._rng.random() < 0.4:
            self._world.scheduler.stall()  # the group may be planned anew meanwhile

    def _was_lost(self, partitions: Partitions) -> None:
        self._ended(self._keys(partitions))
        self.count("lost")

    def _ended(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._before[key] = self._expected[key]
            self._asked.pop(key, None)
            if self._commits != _IN_TRANSACTIONS:
                self._owed.pop(key, None)
        self.lost(keys)

    def _goes_on(self, key: Key) -> None:
        """A partition stayed, though it was about to go."""
        del self._asked[key]
        self.goes_on(self._log.state, self._epoch, [key])

    def _keys(self, partitions: Partitions) -> list[Key]:
        topics = self._world.topics
        return [(topics[name], n) for name, numbers in partitions.items() for n in numbers]

    # --- other calls --------------------------------------------------------------------

    def _go_elsewhere(self) -> None:
        keys = [key for key in self._reads if self._rng.random() < 0.5]
        try:
            match self._rng.randrange(6):
                case 0:
                    self._subscribe(self._rng.choice(_SUBSCRIPTIONS))
                case 1 if keys:
                    self._consumer.pause(self._named(keys))
                    self._paused |= dict.fromkeys(keys)
                case 2 | 3:
                    self._consumer.resume()
                    self._paused.clear()
                case 4 if keys and self._commits != _BY_ITSELF:
                    self._go_back(keys[0])
                case _:
                    self._consumer.lag()
        except IllegalStateError:
            assert any(key not in self._reads for key in keys), "none of them went meanwhile"

    def _go_back(self, key: Key) -> None:
        """Read again what it did not commit, nor try to."""
        name, number = self._world.name_of(key[0]), key[1]
        committed = self._consumer.committed().get(name, {}).get(number, 0)
        lowest = max(committed, self._tried.get(key, 0), self._part(key).first)
        if key not in self._reads or lowest >= self._expected[key]:
            return
        offset = self._rng.randrange(lowest, self._expected[key])
        try:
            self._consumer.seek(name, number, offset)
        except OffsetOutOfRangeError:
            return  # trimmed meanwhile
        if key in self._reads:
            self._expected[key] = offset
            self._owed.pop(key, None)
            self.count("sought")

    def _named(self, keys: Iterable[Key]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic_id, number in keys:
            found.setdefault(self._world.name_of(topic_id), []).append(number)
        return found
