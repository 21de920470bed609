"""A lease: a lock in a bucket, where no kernel frees the locks of a dead process.

To take the lease, a process creates the object of the next epoch, if it is absent. The holder
rewrites this object every few seconds. Another process may take the next epoch when the object is
old by the clock *of the store*. So a lease only keeps others from trying; the holder's writes are
fenced by generations and epochs in the log. A damaged object also counts until it is old.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.format.json_bytes import decode_members, encode_members
from kmq_storage.objects.bucket import Bucket, Put
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.waking import Flag

_BEATS_PER_LEASE = 3
_MEMBERS = ("nonce", "holder", "seconds", "released")


@dataclass(frozen=True, slots=True)
class _Holder:
    epoch: int
    nonce: str
    name: str
    seconds: float
    #: UTC microseconds by the clock of the store.
    beaten: int
    released: bool


class Lease:
    """A lock among all hosts; its folder has one object per epoch."""

    def __init__(
        self,
        bucket: Bucket,
        folder: str,
        environment: Environment,
        *,
        read_only: bool = False,
        seconds: float = limits.LEASE_SECONDS,
        create: Callable[[str, Sequence[Bytes]], Put] | None = None,
    ) -> None:
        self._bucket = bucket
        self._put_if_absent = create or bucket.put_if_absent
        self._folder = folder
        self._environment = environment
        self._read_only = read_only
        #: A holder that wrote nothing for this long (seconds) counts as dead.
        self.seconds = seconds
        self._stop: Flag | None = None
        self._epoch = 0
        self._nonce = ""
        reopen_in_child(self._after_fork)

    def try_acquire(self) -> bool:
        """Take the lease if it is free."""
        if self._stop is not None:
            return False
        last = self._last()
        if last is not None and self._is_live(last):
            return False
        return self._take(last)

    def take_over(self) -> bool:
        """Take the lease from its holder, dead or alive; the holder's writes must be fenced."""
        return self._stop is None and self._take(self._last())

    def _take(self, last: _Holder | None) -> bool:
        self._epoch = last.epoch + 1 if last else 1
        self._nonce = self._environment.new_uuid().hex
        if not self._create():
            return False
        if last is not None:
            self._bucket.delete(self._name(last.epoch))
        stop = Flag()
        threading.Thread(
            target=self._beat, args=(stop, self._epoch), name="kmq-lease", daemon=True
        ).start()  # may raise: then the lease isn't held, and ends by itself
        self._stop = stop
        return True

    def _create(self) -> bool:
        name = self._name(self._epoch)
        if self._put_if_absent(name, [self._body()]) is Put.CREATED:
            return True
        with suppress(FileNotFoundError):
            return self._read(self._epoch).nonce == self._nonce
        return False

    def _beat(self, stop: Flag, epoch: int) -> None:
        while not stop.wait(self.seconds / _BEATS_PER_LEASE):
            with suppress(OSError):  # the next beat may come through
                self._bucket.put(self._name(epoch), [self._body()])

    def release_own(self) -> None:
        """Release the lease, which belongs to the process and not to a thread."""
        self.release()

    def release(self) -> None:
        """Release the lease."""
        if self._stop is None:
            return
        self._stop.set()
        self._stop = None
        with suppress(OSError):  # it expires by itself
            if not self.is_ours():
                return  # another process has taken it over
            self._bucket.put(self._name(self._epoch), [self._body(released=True)])

    def is_ours(self) -> bool:
        """Whether the newest epoch is the one that this handle took."""
        last = self._last()
        return last is not None and (last.epoch, last.nonce) == (self._epoch, self._nonce)

    def is_held(self) -> bool:
        """Whether a live process holds the lease."""
        last = self._last()
        return last is not None and self._is_live(last)

    def beat(self) -> None:
        """Do nothing: a thread of the lease beats."""

    def last_beat(self) -> int | None:
        """When the holder last wrote the object; None when the lease is free."""
        last = self._last()
        return None if last is None or last.released else last.beaten

    def discard(self) -> None:
        """See `Lock.discard`."""
        for found in list(self._bucket.list(self._folder)):
            self._bucket.delete(found.path)

    def holder(self) -> str:
        """The current or last holder of the lease, for an error message."""
        last = self._last()
        if last is None:
            return "another process"
        return f"{last.name}; if it is dead, its lease ends {last.seconds:g} s after its death"

    def _after_fork(self) -> None:
        """Forget the lease in a child: only the parent holds it."""
        self._stop = None

    def _name(self, epoch: int) -> str:
        return paths.lease(self._folder, epoch)

    def _body(self, *, released: bool = False) -> bytes:
        facts = {
            "nonce": self._nonce,
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "seconds": self.seconds,
            "released": released,
        }
        return encode_members(facts)

    def _last(self) -> _Holder | None:
        epochs = [paths.try_epoch(found.path) for found in self._bucket.list(self._folder)]
        for epoch in sorted((each for each in epochs if each is not None), reverse=True):
            with suppress(FileNotFoundError):
                return self._read(epoch)
        return None

    def _read(self, epoch: int) -> _Holder:
        name = self._name(epoch)
        facts = decode_lease(self._bucket.get(name).data.to_pybytes()) or {
            "nonce": "",
            "holder": "a process whose lease is damaged",
            "seconds": self.seconds,
            "released": False,
        }
        return _Holder(
            epoch,
            facts["nonce"],
            facts["holder"],
            facts["seconds"],
            self._bucket.modified(name),
            facts["released"],
        )

    def _is_live(self, holder: _Holder) -> bool:
        if holder.released:
            return False
        # The store's clock can't be read without writing: a read-only handle uses this host's.
        now = self._environment.now_us() if self._read_only else self._store_time()
        return now <= holder.beaten + holder.seconds * 1e6

    def _store_time(self) -> int:
        return store_time(self._bucket, self._folder, self._environment)


def decode_lease(raw: bytes) -> dict[str, Any] | None:
    """The facts of a lease; None when it is damaged. Leases of older versions have no checksum."""
    return decode_members(raw, _MEMBERS, unproven=True)


def store_time(bucket: Bucket, folder: str, environment: Environment) -> int:
    """The time by the store's clock (UTC us, to the second), from the date of a new object."""
    name = f"{folder}/{environment.new_uuid().hex}.clock"
    bucket.put(name, [b""])
    try:
        return bucket.modified(name)
    finally:
        bucket.delete(name)
