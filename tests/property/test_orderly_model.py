"""The process queue under random records and answers, against RocketMQ's two maps.

Finds: records that are lost, doubled or overtaken, offsets that pass what is not done with, counts
that survive their record, and a dropped queue that commits.
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
LIMITED = [
    OrderlySettings(max_reconsume_times=1, when_exhausted=end)
    for end in ("dead_letter", "skip", "block")
]


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
            self.offset = max(self.taken) + 1
            self.taken = set()
        elif step in (Step.BURY, Step.SKIP):
            self.taken -= offsets
        if step in (Step.BURY, Step.SKIP):
            self.buried += sorted(offsets)

    @rule(count=st.integers(0, 5), again=st.booleans())
    def read(self, count: int, again: bool) -> None:
        """The reader brings the next records, or some that it brought before, too."""
        first = max(0, self.next - 3) if again else self.next
        new = [SimpleNamespace(offset=n) for n in range(self.next, self.next + count)]
        old = [SimpleNamespace(offset=n) for n in range(first, self.next) if n not in self.buried]
        was_scheduled = self.state.is_scheduled
        self.state = transitions.schedule(transitions.put(self.state, [*new, *old]))
        asks = self.state.waiting and not self.is_leaving
        assert self.state.is_scheduled == bool(was_scheduled or asks)
        if not self.state.is_dropped:
            self.waits |= set(_offsets(new))
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

    @precondition(lambda self: self.batch)
    @rule(status=STATUSES, auto=st.booleans(), limited=st.sampled_from(LIMITED))
    def answer(self, status: OrderlyStatus, auto: bool, limited: OrderlySettings) -> None:
        """The listener answers."""
        batch, self.batch = self.batch, []
        counts = self.state.counts(batch)
        step = decide(status, counts, limited, auto_commit=auto)
        before = self.state
        self.state = settled(batch, self.state, step, auto_commit=auto)
        assert not self.state.is_called
        if self.state.is_dropped:
            assert self.state == replace(before, is_called=False)
            return
        assert counts == tuple(self.tries[offset] for offset in _offsets(batch))
        if status is SUSPEND and min(counts) >= 1 and limited.when_exhausted != "block":
            assert step is (Step.SKIP if limited.when_exhausted == "skip" else Step.BURY)
        self._settle_in_model(step, set(_offsets(batch)), auto=auto)
        if step is Step.AGAIN:
            assert _offsets(self.state.waiting)[: len(batch)] == _offsets(batch)

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

    @precondition(lambda self: self.next > 40)
    @rule()
    def drop(self) -> None:
        """The partition is another member's from now on."""
        self.state = transitions.drop(self.state)
        self.waits, self.taken = set(), set()

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


class TestOrderlyModel(OrderlyModel.TestCase):
    settings = settings(max_examples=100, stateful_step_count=80, deadline=None)
