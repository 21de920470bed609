"""Verification of the next batches in other threads, while the reader uses the current one.

Checksums are most of the work of reading mapped files, and they need no interpreter lock. The first
thread that gets to a proof computes it, which may also be the reader. So the reader never waits for
a thread that has not started.
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

#: More than three threads would wait for memory, not for a core.
_THREADS = min(3, (os.cpu_count() or 1) - 1)
#: Fewer bytes are verified sooner than handed over.
_BYTES_MIN = 2 * 1024 * 1024


class Prover:
    """Verifies messages, and those that its reader needs soon in other threads."""

    def __init__(self) -> None:
        self._coming: dict[Location, _Proof] = {}
        #: The threads end with the reader; a reader of little data starts none.
        self._threads: ThreadPoolExecutor | None = None
        reopen_in_child(self._after_fork)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether these parts are large enough to verify them in another thread."""
        return _THREADS > 0 and sum(p.end - p.start for p in parts) >= _BYTES_MIN

    def begin(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> None:
        """Begin to verify parts of a message in another thread."""
        proof = self._coming[place] = _Proof(message, parts)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "kmq-prove")
        with suppress(RuntimeError):  # no more threads here, or the interpreter ends
            self._threads.submit(proof.find_out)

    def message(self, place: Location) -> pa.Buffer | None:
        """The message at a place whose verification was begun, or None."""
        proof = self._coming.get(place)
        return None if proof is None else proof.message

    def holds(self, place: Location, message: pa.Buffer, parts: Sequence[Part]) -> bool:
        """Whether these parts of the message at a place match their checksums."""
        proof = self._coming.pop(place, None)
        if proof is None or proof.parts != parts:
            return _holds(message, parts)
        proof.find_out()
        for other in self._coming.values():  # verify later ones rather than wait
            if proof.holds is not None:
                break
            other.find_out()
        found, proof.message = proof.wait(), None  # so that a late thread keeps no map
        return found

    def forget(self) -> None:
        """Drop all verifications that were begun."""
        for proof in self._coming.values():
            proof.message = None
        self._coming.clear()

    def _after_fork(self) -> None:
        """Forget the parent's threads."""
        self._coming.clear()
        self._threads = None


class _Proof:
    """The verification of some parts of a message."""

    def __init__(self, message: pa.Buffer, parts: Sequence[Part]) -> None:
        self.message: pa.Buffer | None = message
        self.parts = parts
        self._begun = threading.Lock()
        self._unknown = threading.Lock()
        self._unknown.acquire()
        #: The result; None until it is known.
        self.holds: bool | None = None

    def find_out(self) -> None:
        """Verify the parts, unless another thread has begun to."""
        if self._begun.acquire(blocking=False):
            try:
                self.holds = _holds(self.message, self.parts)
            finally:
                self._unknown.release()

    def wait(self) -> bool:
        """Wait until the check is done; returns whether the bytes are as they were written."""
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
