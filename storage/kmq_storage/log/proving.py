"""Checksums of the batches that come next, worked out by other threads while one is used.

They are most of the work of reading what is mapped, and need no interpreter lock. Whoever comes
first to a proof finds it out, the reader too: nothing waits for a thread that never got its turn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa

from kmq_storage.format.checksum import checksum
from kmq_storage.format.packing import Part
from kmq_storage.model import Location
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.objects.mapping import brought_in

#: More threads than three wait for memory, not for a core.
_THREADS = min(3, (os.cpu_count() or 1) - 1)
#: Less is done sooner than handed over.
_BYTES_MIN = 2 * 1024 * 1024


class Prover:
    """Finds out whether messages are what they were; knows which ones its reader needs soon."""

    def __init__(self) -> None:
        self._coming: dict[Location, _Proof] = {}
        #: They end with their reader; one that reads little has none.
        self._threads: ThreadPoolExecutor | None = None
        reopen_in_child(self)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether it is worth it to have these found out by another thread."""
        return _THREADS > 0 and sum(p.end - p.start for p in parts) >= _BYTES_MIN

    def begin(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> None:
        """Have it found out by another thread."""
        proof = self._coming[place] = _Proof(message, parts)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "kmq-prove")
        with suppress(RuntimeError):  # no more threads here, or the interpreter ends
            self._threads.submit(proof.find_out)

    def message(self, place: Location) -> pa.Buffer | None:
        """The message at a place that was begun with; None when none was."""
        proof = self._coming.get(place)
        return None if proof is None else proof.message

    def holds(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> bool:
        """Whether the parts of the message at a place are what they were."""
        proof = self._coming.pop(place, None)
        if proof is None or proof.parts != parts:
            return _holds(message, parts)
        proof.find_out()
        for other in self._coming.values():  # rather than waiting
            if proof.holds is not None:
                break
            other.find_out()
        found, proof.message = proof.wait(), None  # a thread that comes late to it holds no map
        return found

    def forget(self) -> None:
        """What was begun is not needed."""
        for proof in self._coming.values():
            proof.message = None
        self._coming.clear()

    def after_fork_in_child(self) -> None:
        """The threads are the parent's."""
        self._coming.clear()
        self._threads = None


class _Proof:
    """Whether parts of a message are what they were."""

    def __init__(self, message: pa.Buffer, parts: Sequence[Part]) -> None:
        self.message: pa.Buffer | None = message
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
                self.holds = _holds(self.message, self.parts)
            finally:
                self._unknown.release()

    def wait(self) -> bool:
        """The answer, when it is known."""
        if self.holds is None:
            with self._unknown:
                pass
        return bool(self.holds)


def _holds(message: pa.Buffer | None, parts: Sequence[Part]) -> bool:
    return message is not None and all(
        checksum(brought_in(message.slice(part.start, part.end - part.start)), part.before)
        == part.behind
        for part in parts
    )
