"""A bucket with the contract of `Bucket` behind a network that delays, repeats and loses.

What was created stays, whatever the client is told. Each request is a place to change tasks, on
its way there and on its way back.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kmq_storage.objects.bucket import Fetched, Put, joined_bytes
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes, FoundFile
from tests.simulation.scheduler import Scheduler
from tests.support.memory_bucket import MemoryBucket

#: How long a request is on its way, one way (seconds).
_LATENCY = (0.005, 0.02, 0.2)
#: A listing may be that old (seconds).
STALE = 2.0


@dataclass
class BucketFaults:
    """How often things go wrong, as probabilities per request."""

    #: A put-if-absent without a usable answer, or with a wrong one.
    doubt: float = 0.0
    #: A server error, timeout or reset of any other request.
    error: float = 0.0
    #: A listing without what is new, and with what was deleted.
    stale: float = 0.0


class Doubt(enum.Enum):
    """What may happen to a put-if-absent."""

    NEVER_ARRIVES = enum.auto()
    ARRIVES_LATE = enum.auto()
    #: A timeout, a reset, a 5xx or a 409, though the object was created.
    ANSWER_IS_LOST = enum.auto()
    #: Something on the way sends it again: the second try is told of the first one.
    IS_REPEATED = enum.auto()


class SimulatedBucket:
    """Objects, and who is on the way to them."""

    url = "simulated://bucket"

    def __init__(self, scheduler: Scheduler, faults: BucketFaults) -> None:
        self.scheduler = scheduler
        self.rng: random.Random = scheduler.rng
        self.faults = faults
        self._stored = MemoryBucket(self.url, clock=lambda: int(scheduler.clock * 1e6))
        #: What is still on its way, though its client gave up.
        self._late: list[Callable[[], object]] = []
        #: Names and when they appeared or went, by the store's clock.
        self._changed: dict[str, float] = {}
        self._deleted: dict[str, FoundFile] = {}
        #: Told of each object before it is deleted.
        self.watch_removal: Callable[[str], None] = lambda path: None
        self.boots = 0
        #: How many requests failed on purpose.
        self.failed = 0

    def crash(self) -> None:
        """All hosts end; what is on its way arrives or not."""
        for apply in self._late:
            if self.rng.random() < 0.5:
                apply()
        self._late.clear()
        self.boots += 1

    def _travel(self) -> None:
        self.scheduler.pause(self.rng.choice(_LATENCY), stay=0.4)
        if self._late and not self.scheduler.from_outside and self.rng.random() < 0.1:
            self._late.pop(self.rng.randrange(len(self._late)))()

    def _happens(self, chance: float) -> bool:
        happens = not self.scheduler.from_outside and self.rng.random() < chance
        self.failed += happens
        return happens

    def _ask(self, name: str) -> None:
        self._travel()
        if self._happens(self.faults.error):
            raise OSError(f"injected: no answer for {name}")

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """An object from a byte on."""
        self._ask(name)
        found = self._stored.get(name, start, length)
        self._travel()
        return found

    def modified(self, name: str) -> int:
        """When an object was written."""
        self._ask(name)
        return self._stored.modified(name)

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """Write an object; after an error it may be there or not."""
        body = joined_bytes(buffers)
        self._ask(name)
        self._keep(name, body)
        self._ask(name)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free, whatever is answered."""
        body = joined_bytes(buffers)
        self._travel()
        doubt = self.rng.choice(list(Doubt)) if self._happens(self.faults.doubt) else None
        if doubt is Doubt.ARRIVES_LATE:
            self._late.append(lambda: self._create(name, body))
        if doubt in (Doubt.ARRIVES_LATE, Doubt.NEVER_ARRIVES):
            self._travel()
            return Put.UNKNOWN
        created = self._create(name, body)
        self._travel()
        if doubt is Doubt.ANSWER_IS_LOST:
            return Put.UNKNOWN
        return Put.CREATED if created and doubt is None else Put.TAKEN

    def _create(self, name: str, body: bytes) -> bool:
        free = name not in self._stored.objects
        if free:
            self._keep(name, body)
        return free

    def _keep(self, name: str, body: bytes) -> None:
        self._stored.put(name, [body])
        self._changed[name] = self.scheduler.clock
        self._deleted.pop(name, None)

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """The objects below a folder by name; a listing may be a little old."""
        self._ask(folder)
        found = {file.path: file for file in self._stored.list(folder, after)}
        if self._happens(self.faults.stale):
            since = self.scheduler.clock - STALE
            found = {path: file for path, file in found.items() if self._changed[path] < since}
            found |= {
                path: file
                for path, file in self._deleted.items()
                if path.startswith(f"{folder}/") and path > after and self._changed[path] > since
            }
        return iter([found[path] for path in sorted(found)])

    def delete(self, *names: str) -> None:
        """Delete objects; after an error each may be there or not."""
        for name in names:
            self._delete(name)

    def _delete(self, name: str) -> None:
        self._ask(name)
        if name in self._stored.objects:
            self.watch_removal(name)
            body, written = self._stored.objects[name], self._stored.modified(name)
            self._deleted[name] = FoundFile(name, len(body), written)
            self._changed[name] = self.scheduler.clock
            self._stored.delete(name)
        self._ask(name)

    def close(self) -> None:
        """Nothing was lent."""


class SimulatedFiles(BucketFiles):
    """The files of a store in a simulated bucket, as one host sees them."""

    #: Threads of their own would be in nobody's turn.
    uploads = 1

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Nothing: see `uploads`."""
