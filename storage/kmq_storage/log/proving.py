"""Checksums of the batches that come next, worked out by other threads while one is used.

They are most of the work of reading what is mapped, and need no interpreter lock. Whoever comes
first to a proof finds it out, the reader too: nothing waits for a thread that never got its turn.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from kmq_storage.format.checksum import RUNS_ASIDE, checksum, checksum_aside
from kmq_storage.format.packing import Part
from kmq_storage.model import Location
from kmq_storage.objects.fork import reopen_in_child

#: More threads than this wait for memory, not for a core.
_THREADS_MAX = 3
#: Less is done sooner than handed over.
_BYTES_MIN = 2 * 1024 * 1024


class Prover:
    """Finds out whether messages are what they were; knows which ones its reader needs soon."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        reopen_in_child(self)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether it is worth it to have these found out by another thread."""
        return self._threads.most > 0 and sum(p.end - p.start for p in parts) >= _BYTES_MIN

    def begin(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> None:
        """Have it found out by another thread."""
        proof = self._coming[place] = _Proof(message, parts)
        self._threads.have_found_out(proof)

    def holds(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> bool:
        """Whether the parts of the message at a place are what they were."""
        proof = self._coming.pop(place, None)
        if proof is None or proof.parts != parts:
            return _holds(message, parts, checksum_aside if self._coming else checksum)
        proof.find_out()
        for other in self._coming.values():  # rather than waiting
            if proof.holds is not None:
                break
            other.find_out()
        return proof.wait()

    def forget(self) -> None:
        """What was begun is not needed."""
        self._coming.clear()

    def after_fork_in_child(self) -> None:
        """The threads are the parent's."""
        self._coming: dict[Location, _Proof] = {}
        cores = os.cpu_count() or 1
        self._threads = _Threads(min(_THREADS_MAX, cores - 1) if RUNS_ASIDE else 0)


class _Proof:
    """Whether parts of a message are what they were."""

    def __init__(self, message: pa.Buffer, parts: Sequence[Part]) -> None:
        self._message = message
        self.parts = parts
        self._begun = threading.Lock()
        self._unknown = threading.Lock()
        self._unknown.acquire()
        #: None until it is known.
        self.holds: bool | None = None

    def find_out(self) -> None:
        """Find it out, unless somebody else is at it."""
        if self._begun.acquire(blocking=False):
            try:
                self.holds = _holds(self._message, self.parts, checksum_aside)
            finally:
                self._unknown.release()

    def wait(self) -> bool:
        """The answer, when it is known."""
        if self.holds is None:
            with self._unknown:
                pass
        return bool(self.holds)


def _holds(message: pa.Buffer, parts: Sequence[Part], crc: Callable[..., int]) -> bool:
    return all(
        crc(message.slice(part.start, part.end - part.start), part.before) == part.behind
        for part in parts
    )


class _Threads:
    """Threads that end when there is nothing to find out, so that nobody has to end them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: deque[_Proof] = deque()
        self._running = 0
        self._lock = threading.Lock()

    def have_found_out(self, proof: _Proof) -> None:
        with self._lock:
            self._waiting.append(proof)
            if self._running == self.most:
                return
            self._running += 1
        try:
            threading.Thread(target=self._work, name="kmq-prove").start()
        except RuntimeError:  # no more threads here, or the interpreter ends: the reader does it
            with self._lock:
                self._running -= 1

    def _work(self) -> None:
        while (proof := self._next()) is not None:
            proof.find_out()

    def _next(self) -> _Proof | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None
