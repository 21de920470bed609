"""A queue under random calls, against a model with one small object per record.

Finds: a record that two receivers hold, one that nobody gets any more, a late answer that changes
something, an order that is broken, counts that don't add up, a delivery too many or too few, and a
checkpoint that forgets. `test_queue_mutants` plants such mistakes.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from kmq_storage.errors import ConflictError
from kmq_storage.format.delivery_numbers import times_of
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
    Run,
    SealedSlipAcquireEntry,
)
from kmq_storage.format.schedule_entry import Schedule
from kmq_storage.log.state.queues.queues import Queues, spans_of
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.log.state.queues.snapshot import queues_snapshot, restore_queues, rows_snapshot
from tests.property.queue_records import SlipModel, one_by_one, said_while_unbound
from tests.property.queue_under_test import KEYS, QUEUE, SLIP, TOPIC, QueueUnderTest

#: How many to receive, an answer, its delay, and how long to wait then.
TURN = st.tuples(
    st.sampled_from([20, 2]),
    st.sampled_from([RETRY, RETRY, None, None, EXTEND, EXTEND, RELEASE, ACK, DEAD]),
    st.sampled_from([0, 0, 5]),
    st.sampled_from([0, 0, 7, 60]),
)


class QueueModel(QueueUnderTest):
    """Senders and receivers of a queue that do anything at any time."""

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

    @rule(
        data=st.data(),
        what=st.sampled_from([ACK, RETRY, EXTEND, DEAD, RELEASE]),
        delay=st.integers(0, 40),
        behind=st.integers(0, 20),
    )
    def answer(self, data: st.DataObject, what: int, delay: int, behind: int) -> None:
        if not self.handed:
            return
        noted = set() if self.slip is None else self.slip.noted
        newest = [run for run in self.handed[-20:] if run not in noted]
        if not newest:
            return
        runs = data.draw(st.lists(st.sampled_from(newest), min_size=1, max_size=4, unique=True))
        self.say(runs, what, delay, behind)

    @rule(
        turns=st.lists(TURN, min_size=1, max_size=5),
        lock=st.integers(1, 20),
        behind=st.sampled_from([0, 60]),
    )
    def work(self, turns: list[tuple[int, int | None, int, int]], lock: int, behind: int) -> None:
        """One receives, and answers or lets the lock end; with every turn comes a late answer."""
        before: list[Run] = []
        for most, what, delay, pause in turns:
            if not self._expected(1, each_once=False):
                first = 7 if self.order == "none" else 4
                self._send(KEYS[0], 4, [Schedule(2, 0, NEVER, first)])
            begin = len(self.handed)
            self.acquire(most, lock, noting=False)
            got = self.handed[begin:]
            if before and not self.is_in_time(before, self.now):
                self.say(before, ACK, 0, behind)
            if got and what is not None:
                self.say(got, what, delay, 0)
            self.now += pause
            self.what_is_given_up_is_known()
            self.the_counts_add_up()
            before = got

    @rule()
    def bury(self) -> None:
        """Records that were handed out too often become dead letters."""
        runs = self.state.queue("q").exhausted(self.now)
        if runs:
            result = self._commit(AnswerEntry(QUEUE, EXHAUSTED, self.now, 0, tuple(runs)))
            if self._must_be_taken_over():
                assert isinstance(result, ConflictError)
                return
            assert isinstance(result, list)
            for run in one_by_one(runs):
                self.records[run[:2], run.first].state = "done"
                self.totals.dead += 1

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


class KeyedModel(QueueModel):
    order = "key"


class StrictModel(QueueModel):
    order = "strict"


MACHINES = (KeyedModel, StrictModel, QueueModel)
#: As many steps as each of them takes in a run.
STEPS = settings(stateful_step_count=30)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_queue_does_what_its_model_does(machine: type[QueueModel]):
    examples = settings.default.max_examples // 5 if settings.default else 20
    run_state_machine_as_test(machine, settings=settings(STEPS, max_examples=examples))
