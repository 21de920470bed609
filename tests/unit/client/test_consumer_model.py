"""A consumer against a model, over random calls: every record once, and positions that say so.

Finds: records that are skipped or doubled where calls of several kinds meet, and a position that
counts what was fetched instead of what was handed out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kmq_spark as kmq

PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)


class ConsumerModel(RuleBasedStateMachine):
    """The model: the end, the position and the pause of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = [0] * PARTITIONS
        self.positions = [0] * PARTITIONS
        self.committed: dict[int, int] = {}
        self.paused: set[int] = set()

    @initialize()
    def open(self) -> None:
        """A member of a group on an empty topic."""
        self.store = kmq.open(f"memory://{uuid.uuid4().hex}", durability="os")
        self.store.create_topic("t", partitions=PARTITIONS)
        self.producer = self.store.producer(linger=0.0)
        self.consumer = self.store.consumer("g", topics=["t"])

    @rule(partition=partitions, count=st.integers(1, 12))
    def send(self, partition: int, count: int) -> None:
        """More records, each telling its place."""
        first = self.ends[partition]
        values = [b"%d:%d" % (partition, first + n) for n in range(count)]
        self.producer.send_batch("t", values, partition=partition).result(10)
        self.ends[partition] += count

    def _took(self, places: Iterable[tuple[int, int, bytes | None]], most: int) -> None:
        """What was handed out: the next of its partition, and nothing is held back."""
        waiting = sum(
            self.ends[n] - self.positions[n] for n in range(PARTITIONS) if n not in self.paused
        )
        count = 0
        for partition, offset, value in places:
            assert partition not in self.paused
            assert offset == self.positions[partition]
            assert value == b"%d:%d" % (partition, offset)
            self.positions[partition] += 1
            count += 1
        assert count == min(most, waiting)

    @rule()
    def poll(self) -> None:
        """One record."""
        record = self.consumer.poll()
        self._took([(record.partition, record.offset, record.value)] if record else [], 1)

    @rule(most=st.integers(1, 20))
    def consume(self, most: int) -> None:
        """A list."""
        found = self.consumer.consume(most, timeout=0)
        self._took([(each.partition, each.offset, each.value) for each in found], most)

    @rule(most=st.integers(1, 20))
    def consume_arrow(self, most: int) -> None:
        """A table."""
        table = self.consumer.consume_arrow(most, timeout=0)
        names = ("partition", "offset", "value")
        rows = [] if table is None else zip(*(table[n].to_pylist() for n in names), strict=True)
        self._took(rows, most)

    @rule(partition=partitions, share=st.floats(0, 1))
    def seek(self, partition: int, share: float) -> None:
        """Anywhere in the log."""
        self.positions[partition] = int(self.ends[partition] * share)
        self.consumer.seek("t", partition, self.positions[partition])

    @rule(partition=partitions)
    def pause(self, partition: int) -> None:
        """One partition."""
        self.paused.add(partition)
        self.consumer.pause({"t": [partition]})

    @rule(partition=partitions)
    def resume(self, partition: int) -> None:
        """One partition."""
        self.paused.discard(partition)
        self.consumer.resume({"t": [partition]})

    @rule()
    def commit(self) -> None:
        """What was handed out."""
        self.consumer.commit()
        self.committed = dict(enumerate(self.positions))

    @rule()
    def subscribe_again(self) -> None:
        """Change nothing."""
        self.consumer.subscribe(["t"])

    @rule()
    def give_way_to_another_member(self) -> None:
        """A close and a successor."""
        self.consumer.close()
        self.consumer = self.store.consumer("g", topics=["t"])
        self.positions = [self.committed.get(n, 0) for n in range(PARTITIONS)]
        self.paused.clear()

    @invariant()
    def positions_lag_and_commits_agree(self) -> None:
        """What the consumer says of itself."""
        expected = dict(enumerate(self.positions))
        assert self.consumer.position() == {"t": expected}
        lags = {n: self.ends[n] - at for n, at in expected.items()}
        assert self.consumer.lag() == {"t": lags}
        assert self.consumer.committed() == ({"t": self.committed} if self.committed else {})

    def teardown(self) -> None:
        """Let go of the store."""
        if hasattr(self, "store"):
            self.store.close()


ConsumerModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestConsumerModel = ConsumerModel.TestCase
