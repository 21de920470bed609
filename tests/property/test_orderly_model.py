"""The process queue under random records and answers, against RocketMQ's two maps.

Finds: records that are lost, doubled or overtaken, offsets that pass what is not done with, counts
that survive their record, steps that don't follow from an answer, and a dropped queue that commits.
`test_orderly_mutants` plants such mistakes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kmq_spark.client.orderly import process_queue as transitions
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.rules import OrderlySettings, OrderlyStatus, Step, decide, settled

SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
STATUSES = st.sampled_from([*OrderlyStatus, SUSPEND, SUSPEND])
#: The size of a batch, the listener's answer, and whether it commits by itself.
ANSWERS = st.tuples(st.integers(1, 4), STATUSES, st.booleans())
LIMITED = [
    OrderlySettings(max_reconsume_times=most, when_exhausted=end)
    for most in (1, 2, 0, -1)
    for end in ("dead_letter", "skip", "block")
]
#: By hand; otherwise each of these commits.
BY_HAND = {
    OrderlyStatus.SUCCESS: Step.KEEP,
    OrderlyStatus.COMMIT: Step.COMMIT,
    OrderlyStatus.ROLLBACK: Step.ROLLBACK,
}


def _step(status: OrderlyStatus, counts: list[int], limited: OrderlySettings, auto: bool) -> Step:
    """What an answer leads to; none of a batch is given up that has tries left."""
    if status in BY_HAND:
        return Step.COMMIT if auto else BY_HAND[status]
    if limited.when_exhausted == "block" or limited.max_reconsume_times < 0:
        return Step.AGAIN
    if min(counts) < limited.max_reconsume_times:
        return Step.AGAIN
    return Step.SKIP if limited.when_exhausted == "skip" else Step.BURY


def _offsets(records: Any) -> list[int]:
    return [each.offset for each in records]


class OrderlyModel(RuleBasedStateMachine):
    """A queue, its reader and its listener; `waits` and `taken` are the model's maps."""

    def __init__(self) -> None:
        super().__init__()
        self.state = QueueState()
        self.waits: set[int] = set()
        self.taken: set[int] = set()
        self.tries: Counter[int] = Counter()
        self.buried: list[int] = []
        self.offset = -1
        self.next = 0
        self.now = self.succeeded = self.failed = 0
        self.is_leaving = False
        #: What the listener has now.
        self.batch: list[Any] = []

    def _settle_in_model(self, step: Step, offsets: set[int], *, auto: bool) -> None:
        if step in (Step.COMMIT, Step.KEEP):
            self.succeeded += len(offsets)
        else:
            self.failed += len(offsets)
        if step in (Step.AGAIN, Step.ROLLBACK):
            self.tries.update(offsets)
        if step is Step.AGAIN:
            self.taken -= offsets
            self.waits |= offsets
        elif step is Step.ROLLBACK:
            self.waits |= self.taken
            self.taken = set()
        elif step is Step.COMMIT or (step in (Step.BURY, Step.SKIP) and auto):
            self._commit_in_model()
        elif step in (Step.BURY, Step.SKIP):
            self._finish(offsets)
        if step in (Step.BURY, Step.SKIP):
            self.buried += sorted(offsets)

    def _commit_in_model(self) -> None:
        """All that was taken is finished, and the offset stands before what waits."""
        self.offset = max(self.offset, min(self.waits | {max(self.taken) + 1}))
        self._finish(self.taken)

    def _finish(self, offsets: set[int]) -> None:
        for offset in offsets:
            del self.tries[offset]
        self.taken = self.taken - offsets

    @rule(count=st.integers(0, 5), again=st.integers(0, 6))
    def read(self, count: int, again: int) -> None:
        """The reader brings the next records, and some that are here or committed."""
        new = range(self.next, self.next + count)
        known = [n for n in range(self.next) if n < self.offset or n in self.waits | self.taken]
        brought = [SimpleNamespace(offset=n) for n in (*new, *known[len(known) - again :])]
        was_scheduled = self.state.is_scheduled
        self.state = transitions.schedule(transitions.put(self.state, brought))
        asks = self.state.waiting and not self.is_leaving
        assert self.state.is_scheduled == bool(was_scheduled or asks)
        if not self.state.is_dropped:
            self.waits |= set(new)
            self.next += count

    @precondition(lambda self: not self.batch)
    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        """The lowest that wait are taken."""
        self.now += 1
        self.state, taken = transitions.take(self.state, most, now=self.now)
        expected = [] if self.is_leaving else sorted(self.waits)[:most]
        assert _offsets(taken) == expected
        assert self.state.is_scheduled == self.state.is_called == bool(expected)
        assert (self.state.last_taken == self.now) == bool(expected)
        self.waits -= set(expected)
        self.taken |= set(expected)
        self.batch = list(taken)

    @rule(limited=st.sampled_from(LIMITED), answers=st.lists(ANSWERS, min_size=1, max_size=5))
    def listen(
        self, limited: OrderlySettings, answers: list[tuple[int, OrderlyStatus, bool]]
    ) -> None:
        """The listener gets records and answers, some times with the same settings."""
        for most, status, auto in answers:
            if not (self.batch or self.waits):
                self.read(3, 2)
            if not self.batch:
                self.take(most)
            if self.batch:
                self._answer(status, auto=auto, limited=limited)
            self.is_as_in_the_model()

    def _answer(self, status: OrderlyStatus, *, auto: bool, limited: OrderlySettings) -> None:
        batch, self.batch = self.batch, []
        counts = self.state.counts(batch)
        before = self.state
        step = decide(status, counts, limited, auto_commit=auto)
        self.state = settled(batch, self.state, step, auto_commit=auto)
        assert not self.state.is_called
        if self.state.is_dropped:
            assert self.state == replace(before, is_called=False)
            return
        expected = [self.tries[offset] for offset in _offsets(batch)]
        assert list(counts) == expected
        assert step is _step(status, expected, limited, auto)
        self._settle_in_model(step, set(_offsets(batch)), auto=auto)
        if step is Step.AGAIN:
            assert _offsets(self.state.waiting)[: len(batch)] == _offsets(batch)

    @precondition(lambda self: self.taken and not self.batch)
    @rule(data=st.data(), finish=st.booleans())
    def put_back(self, data: st.DataObject, *, finish: bool) -> None:
        """Some of what was kept comes again, and the rest is finished: not beyond the former."""
        some = data.draw(st.sets(st.sampled_from(sorted(self.taken)), min_size=1))
        self.state = transitions.consume_again(
            self.state, [SimpleNamespace(offset=n) for n in some]
        )
        self.taken = self.taken - some
        self.waits = self.waits | some
        if finish and self.taken:
            self.state = transitions.commit(self.state)
            self._commit_in_model()

    @rule()
    def commit(self) -> None:
        """The reader commits what is to be committed."""
        offset = self.state.uncommitted
        if self.state.is_dropped:
            assert offset is None
        elif offset is not None:
            assert offset > self.state.committed
            self.state = transitions.note_committed(self.state, offset)
            assert self.state.uncommitted is None

    @rule(is_leaving=st.booleans())
    def leave(self, is_leaving: bool) -> None:
        """The partition is planned for another member, or stays after all."""
        self.state = transitions.schedule(transitions.leave(self.state, is_leaving))
        self.is_leaving = is_leaving

    @precondition(lambda self: self.next > 20)
    @rule()
    def drop(self) -> None:
        """The partition is another member's from now on."""
        self.state = transitions.drop(self.state)
        self.waits, self.taken = set(), set()
        assert self.state.uncommitted is None

    @invariant()
    def is_as_in_the_model(self) -> None:
        """Every record is where it belongs, once, and in order."""
        assert _offsets(self.state.waiting) == sorted(self.waits)
        assert _offsets(self.state.consuming) == sorted(self.taken)
        assert self.state.offset == self.offset
        assert (self.state.succeeded, self.state.failed) == (self.succeeded, self.failed)
        assert self.state.is_leaving == self.is_leaving
        assert all(self.state.offset <= offset for offset in self.waits | self.taken)
        assert set(self.state.reconsumed) <= self.waits | self.taken or self.state.is_dropped
        assert max(Counter(self.buried).values(), default=0) <= 1
        assert transitions.drop(self.state).uncommitted is None


class TestOrderlyModel(OrderlyModel.TestCase):
    settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
