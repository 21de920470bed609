"""Ten thousand queues against a dictionary of lists, by somebody who dies at every change.

Random puts, deletes, trims and maintenance. Who seals, merges, writes anew, trims, deletes,
checkpoints or collects dies before its first change of the disk, before its second, and so on,
until it comes to its end: each time another one opens the store and looks at every queue. Finds:
messages lost, doubled or moved, ends that count for some queues only, indexes given twice.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import Sent, open_engine, send_rows
from tests.support.keyed import TOPIC, maintenance_steps

NAMES = sorted(b"user/%d" % number for number in range(10_000))
SCHEMA = pa.schema([("queue", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])


@dataclass(frozen=True)
class Model:
    """The messages of each queue, with their offsets, and how many were given up of each."""

    queues: Mapping[bytes, list[tuple[int, bytes]]]
    gone: Mapping[bytes, int]

    def put(self, names: Sequence[bytes], messages: Sequence[bytes], offset: int) -> list[int]:
        """Messages stand from an offset on; their indexes."""
        indexes = []
        for at, (name, message) in enumerate(zip(names, messages, strict=True), offset):
            self.queues[name].append((at, message))
            indexes.append(self.gone.get(name, 0) + len(self.queues[name]) - 1)
        return indexes

    def deleted(self, ended: Collection[bytes]) -> Model:
        """The same without these queues."""
        queues = {name: [] if name in ended else queue for name, queue in self.queues.items()}
        return Model(queues, {n: first for n, first in self.gone.items() if n not in ended})

    def trimmed(self, start: int) -> Model:
        """The same from an offset on."""
        kept = {n: [each for each in q if each[0] >= start] for n, q in self.queues.items()}
        gone = {n: self.gone.get(n, 0) + len(q) - len(kept[n]) for n, q in self.queues.items()}
        return Model(kept, gone)

    def table(self) -> pa.Table:
        """Every message with its queue and index, in the order of the names."""
        rows = [
            {"queue": name, "index": self.gone.get(name, 0) + number, "value": message}
            for name in NAMES
            for number, (_, message) in enumerate(self.queues[name])
        ]
        return pa.Table.from_pylist(rows, SCHEMA)


class Walk:
    """A walk through operations on one store, each with a death before each of its changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = DyingDisk(f"memory://{uuid.uuid4().hex}", commits=True)
        self.model = Model({name: [] for name in NAMES}, {})
        #: How often somebody died at what.
        self.died: Counter[str] = Counter()
        self._reopen()
        self._put(NAMES)

    def _reopen(self) -> None:
        self.disk.revive()
        self.store = open_engine(self.disk, file_bytes=1 << 20)
        self.queues = self.store.keyed_queues(TOPIC)

    @property
    def _end(self) -> int:
        """The next offset: a delete that died behind its commit is there twice."""
        (topic,) = self.store.topics()
        return topic.offsets[0][1]

    def step(self, name: str) -> None:
        """One operation on queues as chance has them."""
        some = self.rng.choices(NAMES, k=self.rng.randint(1, 5_000))
        if name == "put":
            self._put(some)
        elif name == "delete":
            ended = {*some, *self.rng.choices(NAMES, k=3 * len(some))}
            ends = [Sent(name, None) for name in ended]  # by this thread: a producer's lives on
            deleted = self.model.deleted(ended)
            self._die_everywhere(name, lambda: send_rows(self.store.log, TOPIC, ends), deleted)
        elif name == "trim":
            start = self.rng.randint(0, self._end)
            trimmed = self.model.trimmed(start)
            self._die_everywhere(name, lambda: self.store.trim(TOPIC, {0: start}), trimmed)
        else:
            self._die_everywhere(name, lambda: MAINTENANCE[name](self.store), self.model)

    def _put(self, names: Sequence[bytes]) -> None:
        end = self._end
        messages = [b"%d" % (end + number) for number in range(len(names))]
        expected = self.model.put(names, messages, end)
        assert self.queues.put_batch(names, messages) == expected

    def _die_everywhere(self, name: str, work: Callable[[], object], after: Model) -> None:
        """Do it until nobody dies; what it changes is there as a whole, and stays."""
        may_be, changes, died = [self.model.table(), after.table()], 0, True
        while died:
            self.disk.changes_left, died = changes, False
            try:
                work()
            except Died:
                died = True
            self._reopen()
            found = self._stored()
            while not found.equals(may_be[0]):
                del may_be[0]  # never again
            self.died[name] += died
            changes += 1
        assert found.equals(may_be[-1])
        self.model = after

    def _stored(self) -> pa.Table:
        """Every message as the store has it, found by the names that it tells."""
        names = [name.encode() if isinstance(name, str) else name for name in self.queues.names()]
        found = self.queues.get_many(NAMES, None, 1_000_000)
        assert {*found["queue"].to_pylist()} == {*names}
        return found


MAINTENANCE = maintenance_steps(now=2**62)


#: After each of these steps come some messages.
FULL = [
    "seal",
    "seal",
    "merge",
    "delete",
    "delete",
    "seal",
    "thin",
    "checkpoint",
    "collect",
    "trim",
]


def test_ten_thousand_queues_are_as_in_the_model_whoever_dies_where():
    walk = Walk(0)
    for step in FULL:
        walk.step(step)
        walk.step("put")
    assert {*+walk.died} == {*MAINTENANCE, "delete", "trim"}, "all of them are interrupted"


@settings(max_examples=3, phases=(Phase.reuse, Phase.generate))  # shrinking takes minutes
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from([*MAINTENANCE, "put", "delete", "trim"]), min_size=6, max_size=9),
)
def test_they_are_in_any_order_of_steps(seed: int, steps: list[str]):
    walk = Walk(seed)
    for step in steps:
        walk.step(step)
        walk.step("put")
