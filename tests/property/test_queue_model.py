"""A queue under random calls, against a model with one small object per record.

Finds: a record that two receivers hold, one that nobody gets any more, a late answer that changes
something, an order that is broken, counts that don't add up, and a checkpoint that forgets.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kmq_storage.errors import ConflictError, KmqError, LeaseExpiredError
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.entries import (
    Entry,
    RecordsEntry,
    TopicEntry,
    decode_entries,
    encode_entry,
)
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    BY_OWNER,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RELEASE,
    RETRY,
    TAKEN_OVER,
    TAKING_OVER,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueEntry,
    Run,
    SealedSlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.binding.binding import RefusedError, Unit, bind
from kmq_storage.log.state.queues.queues import Queues, spans_of
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.log.state.queues.snapshot import queues_snapshot, restore_queues, rows_snapshot
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import QueueSettings, QueueStats
from tests.property.queue_records import Model, SlipModel, Totals, one_by_one, said_while_unbound

QUEUE, TOPIC, SLIP = b"q" * 16, b"t" * 16, b"s" * 16
KEYS: list[Key] = [(QUEUE, 0), (TOPIC, 0), (TOPIC, 1)]
TRIES = 3


class QueueModel(RuleBasedStateMachine):
    """One queue with a log of its own and a topic of two partitions."""

    order = "none"

    def __init__(self) -> None:
        super().__init__()
        self.state = StoreState()
        self.now = 1_000
        self.records: dict[tuple[Key, int], Model] = {}
        self.totals = Totals()
        #: What somebody got, one by one; also what is answered already.
        self.handed: list[Run] = []
        #: The deliveries that somebody was told of, and that were not given back.
        self.used: set[Run] = set()
        self.slip: SlipModel | None = None
        #: How often the topic was unbound.
        self.unbound = 0
        self.rounds = 0
        definition = QueueSettings(max_deliveries=TRIES, order=self.order).to_json()
        self._commit(QueueEntry(QUEUE, "q", definition), TopicEntry(QUEUE, "queue:q", 1, {}))
        self._commit(TopicEntry(TOPIC, "t", 2, {}))
        self._commit(BindEntry(QUEUE, TOPIC, "earliest"))

    def _commit(self, *entries: Entry) -> list[Entry] | KmqError:
        """What the commit says when it is read back, or why it was refused."""
        try:
            bound = bind(self.state, [Unit(entries)])
        except RefusedError as refused:
            return refused.cause
        bound = list(decode_entries(b"".join(map(encode_entry, bound))))
        self.state.apply(self.state.lsn + 1, self.now, bound)
        return bound

    # --- what happens -------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), rows=st.integers(1, 12))
    def send(self, key: Key, rows: int) -> None:
        self._send(key, rows, [])

    @rule(
        facts=st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 90), st.integers(0, 9)),
            min_size=1,
            max_size=4,
        )
    )
    def send_special(self, facts: list[tuple[int, int, int, int]]) -> None:
        schedules, row = [], 0
        for gap, delay, expiry, priority in facts:
            row += gap
            expires = self.now + expiry if expiry < 60 else NEVER
            level = 4 if self.order != "none" else priority
            schedules.append(Schedule(row, self.now + delay if delay else 0, expires, level))
            row += 1
        self._send((QUEUE, 0), row + 1, schedules)

    def _send(self, key: Key, rows: int, schedules: list[Schedule]) -> None:
        entries: list[Entry] = [RecordsEntry(*key, rows, -1, 0, 1, 0, 0, 0, 0, 1)]
        if schedules:
            entries.append(ScheduleEntry(QUEUE, 0, tuple(schedules)))
        base = self.state.topic_by_id(key[0]).parts[key[1]].end  # type: ignore[union-attr]
        assert isinstance(self._commit(*entries), list)
        for offset in range(base, base + rows):
            order = offset % 3 if self.order == "key" else 0
            looked = self.order != "key"
            self.records[key, offset] = Model(key, offset, order=order, looked=looked)
        for each in schedules:
            record = self.records[key, base + each.row]
            record.at, record.expires, record.priority = each.at, each.expires, each.priority

    @rule(key=st.sampled_from(KEYS), rows=st.integers(1, 9))
    def look(self, key: Key, rows: int) -> None:
        """As `looking` does for queues that go by keys."""
        queue = self.state.queue("q")
        begin = queue.looked_up_to(key)
        end = min(begin + rows, spans_of(self.state, queue)[key][1])
        if self.order != "key" or begin >= end:
            return
        orders = tuple(self.records[key, offset].order for offset in range(begin, end))
        times = self.unbound if key[0] == TOPIC else 0
        entry = LookEntry(QUEUE, *key, begin, end, ((begin, end - begin),), orders, times)
        assert isinstance(self._commit(entry), list)
        for offset in range(begin, end):
            self.records[key, offset].looked = True
        assert isinstance(self._commit(entry), ConflictError)

    @rule(between=st.sampled_from([(), ("latest", None)]))
    def read_the_topic_anew(self, between: tuple[str | None, ...]) -> None:
        """All of it comes again, but what somebody had and did not finish is as it was."""
        self.unbound += 1 + between.count(None)
        for start in (None, *between, "earliest"):
            assert isinstance(self._commit(BindEntry(QUEUE, TOPIC, start)), list)
            self.checkpoint()
            for entry in said_while_unbound(self.state.queue("q"), KEYS[1:], self.now):
                assert isinstance(self._commit(entry), ConflictError)
        for record in [r for r in self.records.values() if r.key[0] == TOPIC]:
            record.looked = self.order != "key"
            if record.state == "done" or not record.count:
                record.state, record.at, record.count = "free", 0, 0

    @rule(most=st.integers(1, 20), lock=st.integers(1, 50), noting=st.booleans())
    def acquire(self, most: int, lock: int, noting: bool) -> None:
        found = [] if self._must_be_taken_over() else self._expected(most, each_once=noting)
        expected = [(r.key, r.offset, r.count + 1) for r in found]
        facts = (QUEUE, self.now, self.now + lock, most, "me")
        self.rounds += noting
        if noting:
            before = [] if self.slip is None else [self._ending(BY_OWNER)]
            result = self._commit(*before, SealedSlipAcquireEntry(*facts, (), SLIP, self.rounds, 7))
        else:
            result = self._commit(AcquireEntry(*facts))
        if not expected:
            assert isinstance(result, ConflictError)
            return
        assert isinstance(result, list)
        entry = result[-1]
        assert isinstance(entry, AcquireEntry)
        if noting:
            self._settled()
        got = one_by_one(entry.runs)
        assert [(run[:2], run.first, times_of(run.delivery)) for run in got] == expected
        assert self.used.isdisjoint(got), "an answer of before counts for who has it now"
        self.used.update(got)
        self._expire()
        self.totals.turns += 1
        self.totals.delivered += len(got)
        for run in got:
            record = self.records[run[:2], run.first]
            record.state, record.at, record.number = "held", entry.until, run.delivery
            record.count += 1
            self.handed.append(run)
        if noting:
            self.slip = SlipModel(self.rounds, entry.until, self.handed[-len(got) :])

    @rule(data=st.data())
    def note(self, data: st.DataObject) -> None:
        """The receiver notes that a record is done; only it knows."""
        slip = self.slip
        if slip is not None and self.now < slip.until and (left := self._left(slip)):
            slip.noted.add(data.draw(st.sampled_from(left)))

    def _left(self, slip: SlipModel) -> list[Run]:
        return [run for run in slip.runs if run not in slip.noted | slip.others]

    def _must_be_taken_over(self) -> bool:
        return self.slip is not None and self.slip.until <= self.now

    def _ending(self, by: int) -> SlipAnswerEntry:
        assert self.slip is not None
        noted = () if by == TAKING_OVER else tuple(sorted(self.slip.noted))
        return SlipAnswerEntry(QUEUE, ACK, self.now, 0, noted, SLIP, self.slip.round, by)

    def _settled(self) -> None:
        """A commit says what was noted: it is done, though a lock may have ended meanwhile."""
        for run in self.slip.noted if self.slip else ():
            record = self.records[(run.topic_id, run.partition), run.first]
            assert (record.state, record.number) == ("held", run.delivery), "nobody else got it"
            self._answered(record, ACK, 0)
        self.slip = None

    @rule()
    def end_slip(self) -> None:
        if self.slip is not None:
            result = self._commit(self._ending(BY_OWNER))
            assert isinstance(result, ConflictError if self.slip.taken else list)
            if not self.slip.taken:
                self._settled()

    @rule(whole=st.booleans())
    def take_over(self, whole: bool) -> None:
        """Somebody commits what is noted of records whose lock ended, or dies on the way."""
        if self.slip is None or not self._must_be_taken_over():
            return
        result = self._commit(self._ending(TAKING_OVER))
        assert isinstance(result, ConflictError if self.slip.taken else list)
        self.slip.taken = True
        if whole:
            ending = self._ending(TAKEN_OVER)
            assert isinstance(self._commit(ending), list)
            self._settled()
            assert isinstance(self._commit(ending), ConflictError)

    def _expected(self, most: int, *, each_once: bool) -> list[Model]:
        """The records that can be had now, in their order; perhaps of each key one."""
        live = [r for r in self.records.values() if r.state != "done" and not r.is_over(self.now)]
        in_the_way = [
            r
            for r in live
            if (r.at > self.now and r.state in ("held", "waiting")) or r.count >= TRIES
        ]
        if self.order == "strict" and in_the_way:
            return []
        busy = {r.order for r in in_the_way if r.order} if self.order == "key" else set()
        turn = self.totals.turns % len(KEYS)
        turns = {key: n for n, key in enumerate(KEYS[turn:] + KEYS[:turn])}
        due = [r for r in live if r.at <= self.now < r.expires and r.count < TRIES]
        good = [r for r in due if r.looked and r.order not in busy]
        good.sort(key=lambda r: (-r.priority, turns[r.key], r.offset))
        if each_once:
            orders = [r.order for r in good]
            good = [r for n, r in enumerate(good) if not r.order or r.order not in orders[:n]]
        return good[:most]

    def _expire(self) -> None:
        for record in self.records.values():
            if record.state != "done" and record.is_over(self.now):
                record.state = "done"
                self.totals.expired += 1

    @rule(
        data=st.data(),
        what=st.sampled_from([ACK, RETRY, EXTEND, DEAD, RELEASE]),
        delay=st.integers(0, 40),
    )
    def answer(self, data: st.DataObject, what: int, delay: int) -> None:
        if not self.handed:
            return
        noted = set() if self.slip is None else self.slip.noted
        newest = [run for run in self.handed[-20:] if run not in noted]
        if not newest:
            return
        runs = data.draw(st.lists(st.sampled_from(newest), min_size=1, max_size=4, unique=True))
        at = self.now + delay
        if self.slip is not None:
            self.slip.others.update(runs)
        result = self._commit(AnswerEntry(QUEUE, what, self.now, at, tuple(runs)))
        records = [self.records[(run.topic_id, run.partition), run.first] for run in runs]
        in_time = all(
            record.state == "held" and record.at > self.now and record.number == run.delivery
            for record, run in zip(records, runs, strict=True)
        )
        assert isinstance(result, list if in_time else LeaseExpiredError)
        if in_time:
            for record in records:
                self._answered(record, what, at)

    def _answered(self, record: Model, what: int, at: int) -> None:
        record.answer(what, at)
        self.totals.acked += what == ACK
        self.totals.dead += what == DEAD
        if what == RELEASE:
            self.used.discard(Run(*record.key, record.offset, 1, record.number))
            self.totals.delivered -= 1

    @rule()
    def bury(self) -> None:
        """Records that were handed out too often become dead letters."""
        runs = self.state.queue("q").exhausted(self.now)
        found = {(run[:2], run.first) for run in one_by_one(runs)}
        assert found == {
            place
            for place, record in self.records.items()
            if record.state != "done" and record.at <= self.now and record.count >= TRIES
        }
        if runs:
            result = self._commit(AnswerEntry(QUEUE, EXHAUSTED, self.now, 0, tuple(runs)))
            if self._must_be_taken_over():
                assert isinstance(result, ConflictError)
                return
            assert isinstance(result, list)
            for place in found:
                self.records[place].state = "done"
            self.totals.dead += len(found)

    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        own = [record for record in self.records.values() if record.key == (QUEUE, 0)]
        if not own:
            return
        record = data.draw(st.sampled_from(own))
        run = Run(*record.key, record.offset, 1, 0)
        result = self._commit(AnswerEntry(QUEUE, RECALL, self.now, 0, (run,)))
        nobody_had_it = record.state == "free" and record.count == 0
        assert isinstance(result, list if nobody_had_it else ConflictError)
        if nobody_had_it:
            record.state = "done"

    @rule(seconds=st.integers(1, 70))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def checkpoint(self) -> None:
        """Go on with what comes back from a checkpoint."""
        members, rows = queues_snapshot(self.state.queues), rows_snapshot(self.state.queues)
        restored = Queues()
        restore_queues(restored, json.loads(json.dumps(members)), rows)
        self.state.queues.add(next(iter(restored)))

    # --- what is always so --------------------------------------------------------------

    @invariant()
    def the_counts_add_up(self) -> None:
        queue = self.state.queue("q")
        stats = queue.stats(spans_of(self.state, queue), self.now, {})
        live = [r for r in self.records.values() if r.state != "done"]
        held = [r for r in live if r.state == "held" and r.at > self.now]
        over = [r for r in live if r.is_over(self.now)]
        later = [r for r in live if r.state != "held" and r.at > self.now and r not in over]
        ready, t = len(live) - len(held) - len(over) - len(later), self.totals
        assert stats == QueueStats(
            ready, len(held), len(later), t.delivered, t.acked, t.dead, t.expired + len(over)
        )

    @invariant()
    def what_is_not_finished_is_known(self) -> None:
        queue = self.state.queue("q")
        for key, (_, end) in spans_of(self.state, queue).items():
            rows = queue.unfinished(key, end, self.now, None)
            expected = [
                r.offset
                for r in sorted(self.records.values(), key=lambda r: r.offset)
                if r.key == key and r.state != "done" and not r.is_over(self.now)
            ]
            assert rows["offset"].tolist() == expected

    @invariant()
    def all_below_what_may_be_trimmed_is_finished(self) -> None:
        queue = self.state.queue("q")
        for key, (_, end) in spans_of(self.state, queue).items():
            done = queue.done_below(key, end)
            assert all(
                r.state == "done" for r in self.records.values() if r.key == key and r.offset < done
            )


class KeyedModel(QueueModel):
    order = "key"


class StrictModel(QueueModel):
    order = "strict"


@pytest.mark.parametrize("machine", [KeyedModel, StrictModel, QueueModel])
def test_a_queue_does_what_its_model_does(machine: type[QueueModel]):
    examples = settings.default.max_examples // 5 if settings.default else 20
    how = settings(stateful_step_count=30, max_examples=examples)
    run_state_machine_as_test(machine, settings=how)
