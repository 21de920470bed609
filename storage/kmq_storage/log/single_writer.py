"""The one writer of a store whose bucket does not create names atomically.

It holds a lease of an epoch of its own. Who comes later takes the next epoch once the lease
ended, and the one before stops as soon as it looks: before a commit, when it did not for a while.
"""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.errors import FencedError, IllegalStateError
from kmq_storage.format.identity import BucketFacts
from kmq_storage.log.collected import Moment
from kmq_storage.objects.bucket_files import BucketFiles

#: Two that take the lease at once see what became of it after this long (seconds).
_SETTLE = 1.0
_LOOKS_PER_LEASE = 3


class SingleWriter:
    """The right to write, taken with the first commit. One thread at a time."""

    def __init__(self, files: BucketFiles, facts: BucketFacts, environment: Environment) -> None:
        self._files = files
        self._facts = facts
        self._environment = environment
        self._lease = files.open_lock(paths.WRITER_LOCK)
        self._looked: Moment | None = None

    def check(self) -> bool:
        """Make sure that this is the writer; whether it only now became it.

        IllegalStateError while there is another one, FencedError once another took over.
        """
        now = Moment.now(self._environment)
        if self._looked is None:
            self._take()
            self._looked = now
            return True
        if self._looked.seconds_to(now) > self._lease.seconds / _LOOKS_PER_LEASE:
            if not self._lease.is_ours():
                raise FencedError(
                    f"another writer took over store {self._files.url}, since this one was stopped "
                    f"for longer than its lease ({self._lease.seconds:g} s)",
                    url=self._files.url,
                )
            self._looked = now
        return False

    def _take(self) -> None:
        if self._lease.try_acquire():
            self._environment.sleep(_SETTLE)
            if self._lease.is_ours():
                return
            self._lease.release()
        raise IllegalStateError(
            f"store {self._files.url} takes one writer at a time, for its bucket can't keep "
            f"several apart: {self._facts.one_writer}. The writer is {self._lease.holder()}; close "
            "that one first, or make the store in a bucket that creates names atomically",
            url=self._files.url,
        )

    def close(self) -> None:
        """Make room for the next writer."""
        self._lease.release()
