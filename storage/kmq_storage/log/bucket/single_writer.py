"""The only writer of a store whose bucket does not create names atomically.

The writer holds a lease with its own epoch. When the lease has ended, another writer may take the
next epoch. The earlier writer stops once it checks its lease, which it does before a commit if it
has not done so for a while.
"""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.errors import FencedError, IllegalStateError
from kmq_storage.format.identity import BucketFacts
from kmq_storage.log.bucket.collected import Moment
from kmq_storage.objects.bucket_files import BucketFiles

#: After this long (seconds), two writers that take the lease at once see which one got it.
_SETTLE = 1.0
_LOOKS_PER_LEASE = 3


class SingleWriter:
    """The right to write, which is taken with the first commit; for one thread at a time."""

    def __init__(self, files: BucketFiles, facts: BucketFacts, environment: Environment) -> None:
        self._files = files
        self._facts = facts
        self._environment = environment
        self._lease = files.open_lock(paths.WRITER_LOCK)
        self._looked: Moment | None = None

    def check(self) -> bool:
        """Make sure that this handle is the writer; returns True if it has just become it.

        IllegalStateError while there is another writer, FencedError after another one took over.
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
        """Release the lease for the next writer."""
        self._lease.release()
