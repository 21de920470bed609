"""A walk of keyed queues through random operations, by somebody who dies at every change.

Random puts, deletes, trims and maintenance. Who seals, merges, writes anew, trims, deletes,
checkpoints or collects dies before its first change of the disk, before its second, and so on,
until it comes to its end: each time another one opens the store and looks at every queue.
`python -m tests.property.queue_walk --queues 1000000 --minutes 10` walks on until the time is
over; the seed that it prints makes the same choices again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kmq_spark.client.store import Store
from kmq_storage.format.records import KEY, stored_schema
from kmq_storage.log.staging import SizedBatch
from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import unit_of_batch
from tests.support.keyed import STEPS, TOPIC, merge_runs
from tests.support.storage import open_log

#: Merging keeps the ends of queues, and when they are old it forgets them.
MAINTENANCE = {**STEPS, "forget": lambda store: merge_runs(store, now=2**62)}
#: After each of these steps come some messages.
FULL = [
    *("seal", "seal", "merge", "delete", "delete", "seal", "thin"),
    *("checkpoint", "collect", "trim", "seal", "merge", "delete", "seal", "forget"),
]
#: A log file has room for so many bytes per queue: a few commits.
_FILE_BYTES = 105

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Model:
    """Of each message its queue, by number, and its offset; it says nothing else.

    So a million queues take some bytes per message, where lists by name take some hundred.
    """

    queues: _Numbers
    offsets: _Numbers
    #: How many messages were given up, by number of the queue.
    gone: _Numbers

    def put(self, queues: _Numbers, offset: int) -> Model:
        """The same with messages that stand from an offset on."""
        offsets = np.arange(offset, offset + len(queues))
        return replace(
            self,
            queues=np.concatenate([self.queues, queues]),
            offsets=np.concatenate([self.offsets, offsets]),
        )

    def deleted(self, ended: _Numbers) -> Model:
        """The same without these queues."""
        are = np.zeros(len(self.gone), bool)
        are[ended] = True
        kept = ~are[self.queues]
        return Model(self.queues[kept], self.offsets[kept], np.where(are, 0, self.gone))

    def trimmed(self, start: int) -> Model:
        """The same from an offset on."""
        kept = self.offsets >= start
        gone = self.gone + np.bincount(self.queues[~kept], minlength=len(self.gone))
        return Model(self.queues[kept], self.offsets[kept], gone)

    def indexes(self) -> _Numbers:
        """Of each message the number of those before it in its queue."""
        order = np.argsort(self.queues, kind="stable")
        queues = self.queues[order]
        found = np.empty(len(order), np.int64)
        found[order] = np.arange(len(order)) - np.searchsorted(queues, queues) + self.gone[queues]
        return found

    def table(self, names: pa.Array) -> pa.Table:
        """Every message with its queue and index, in the order of the names."""
        order = np.argsort(self.queues, kind="stable")
        columns = [names.take(pa.array(self.queues[order])), pa.array(self.indexes()[order])]
        values = messages(self.offsets[order])
        return pa.table([*columns, values], names=["queue", "index", "value"])


def messages(offsets: _Numbers) -> pa.Array:
    """What stands at these offsets: each says where it stands."""
    return pa.array(offsets).cast(pa.string()).cast(pa.binary())


class Walk:
    """A walk through operations on one store, each with a death before each of its changes."""

    def __init__(self, seed: int, queues: int = 10_000) -> None:
        self._rng = np.random.default_rng(seed)
        self._names = pa.array(sorted(b"user/%d" % number for number in range(queues)))
        self._disk = DyingDisk(f"memory://{uuid.uuid4().hex}", commits=True)
        nothing = np.zeros(0, np.int64)
        self.model = Model(nothing, nothing, np.zeros(queues, np.int64))
        #: How often somebody died at what.
        self.died: Counter[str] = Counter()
        self._reopen()
        self._put(np.arange(queues))

    def _opened(self) -> Store:
        file_bytes = max(1 << 20, _FILE_BYTES * len(self._names))
        log = open_log(self._disk, durable=False, file_bytes=file_bytes)
        return Store(log, maintenance=False)  # it would do things by the clock

    def _reopen(self) -> None:
        self._disk.revive()
        self.store = self._opened()
        self.queues = self.store.keyed_queues(TOPIC)

    @property
    def _end(self) -> int:
        """The next offset: a delete that died behind its commit is there twice."""
        return self.store.offsets(TOPIC)[0][1]

    def _some(self, most: int) -> _Numbers:
        count = self._rng.integers(1, most, endpoint=True)
        return self._rng.integers(0, len(self._names), count)

    def step(self, name: str) -> None:
        """One operation on queues as chance has them."""
        if name == "put":
            self._put(self._some(len(self._names) // 2))
        elif name == "delete":
            ended = np.unique(self._some(2 * len(self._names)))
            self._die_everywhere(name, lambda: self._delete(ended), self.model.deleted(ended))
        elif name == "trim":
            start = int(self._rng.integers(0, self._end, endpoint=True))
            trimmed = self.model.trimmed(start)
            self._die_everywhere(name, lambda: self.store.trim(TOPIC, {0: start}), trimmed)
        else:
            self._die_everywhere(name, lambda: MAINTENANCE[name](self.store), self.model)

    def _put(self, queues: _Numbers) -> None:
        """By a handle that ends: the threads of its producer would go on living."""
        end = self._end
        self.model = self.model.put(queues, end)
        names = self._names.take(pa.array(queues))
        values = messages(self.model.offsets[-len(queues) :])
        with self._opened() as other:
            told = other.keyed_queues(TOPIC).put_arrow(pa.table({"queue": names, "value": values}))
            assert np.array_equal(told[:], self.model.indexes()[-len(queues) :])

    def _delete(self, ended: _Numbers) -> None:
        """By this thread, which shall die: a producer commits in one of its own."""
        names = self._names.take(pa.array(ended))
        schema = stored_schema(KEY)
        columns = {"timestamp": np.zeros(len(ended), np.int64), "key": names}
        ends = pa.RecordBatch.from_pydict({**columns, "value": pa.nulls(len(ended))}, schema)
        batch = SizedBatch(ends, pc.sum(pc.binary_length(names)).as_py())
        self.store.log.commit([unit_of_batch(self.store.log, TOPIC, batch)])

    def _die_everywhere(self, name: str, work: Callable[[], object], after: Model) -> None:
        """Do it until nobody dies; what it changes is there as a whole, and stays."""
        models = [self.model] if after is self.model else [self.model, after]
        may_be = [model.table(self._names) for model in models]
        changes, died = 0, True
        while died:
            self._disk.changes_left, died = changes, False
            try:
                work()
            except Died:
                died = True
            self._reopen()
            found = self._stored()
            while may_be and not found.equals(may_be[0]):
                del may_be[0]  # never again
            assert may_be, f"{name}, until change {changes}: neither as before nor as after"
            self.died[name] += died
            changes += 1
        assert found.equals(may_be[-1]), f"{name} came to its end, and nothing changed"
        self.model = after

    def _stored(self) -> pa.Table:
        """Every message as the store has it, found by the names that it tells."""
        found = self.queues.get_many(self._names, None, 1_000_000)
        assert self.queues.names() == found["queue"].unique().cast(pa.string()).to_pylist()
        return found


def main() -> int:
    """Walk until the time is over, and tell of each step."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.queue_walk")
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.queues:,} queues", flush=True)
    started = time.monotonic()
    walk, choice = Walk(options.seed, options.queues), random.Random(options.seed)
    further = iter(lambda: choice.choice([*MAINTENANCE, "delete", "trim"]), None)
    for number, step in enumerate(chain(FULL, further), 1):
        walk.step(step)
        walk.step("put")
        seconds = time.monotonic() - started
        print(json.dumps({"step": number, "of": step, **_counts(walk, seconds)}), flush=True)
        if seconds > 60 * options.minutes:
            break
    print(f"ok: {sum(walk.died.values())} deaths, {dict(walk.died)}")
    return 0


def _counts(walk: Walk, seconds: float) -> dict[str, Any]:
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    deaths = sum(walk.died.values())
    counts = {"messages": len(walk.model.queues), "deaths": deaths, "MiB": mebibytes}
    return {**counts, "seconds": round(seconds)}


if __name__ == "__main__":
    sys.exit(main())
