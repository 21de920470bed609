"""Checks of the folder and the kernel: kmq's own disk code, run on a temporary folder."""

from __future__ import annotations

import ctypes
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from kmq_spark.cli.diagnosis import Check
from kmq_storage.objects import futex
from kmq_storage.objects.file_io import sync_data
from kmq_storage.objects.file_systems import how_short_lived, kind_at, why_unfit
from kmq_storage.objects.local import LocalDisk

_SYNCS = 30
_SYNC_BYTES = 4096
#: Milliseconds above which people notice how long an acknowledgement takes.
_SLOW_SYNC_MS = 50.0


def check_folder(store: Path) -> list[Check]:
    """Check that the folder can be written, and that its file system keeps kmq's promises."""
    folder = next(path for path in (store, *store.parents) if path.exists())
    if not folder.is_dir():
        return [Check("folder", "fail", f"{folder} is a file", "name a folder as the store")]
    try:
        with tempfile.TemporaryDirectory(prefix=".kmq-doctor-", dir=folder) as scratch:
            return [Check("folder", "ok", f"{folder} can be written"), *_probe(Path(scratch))]
    except OSError as error:
        return [Check("folder", "fail", str(error), "choose a folder you may write to")]


def _probe(scratch: Path) -> Iterator[Check]:
    disk = LocalDisk(scratch)
    yield _check_kind(kind_at(scratch))
    yield _check_publish(disk)
    yield _check_lock(disk)
    yield _check_sync(scratch)


def _check_kind(kind: str) -> Check:
    """Check the kind of file system; one of a network may pass the other checks."""
    unfit, short_lived = why_unfit(kind), how_short_lived(kind)
    if unfit:
        return Check("file system", "fail", f"{kind}, {unfit}", "use a local disk, or a bucket")
    if short_lived:
        return Check("file system", "warn", f"{kind}: {short_lived}", "use a disk for what is kept")
    return Check("file system", "ok", kind or "unknown")


def _check_publish(disk: LocalDisk) -> Check:
    """Check that a hard link creates a name once, with all its bytes."""
    advice = "this file system can't hold a store; use a local one (ext4, xfs, apfs)"
    try:
        first, second = (disk.publish("name", [b"x"], sync=True) for _ in range(2))
    except OSError as error:
        return Check("link", "fail", str(error), advice)
    if first and not second:
        return Check("link", "ok", "a name is created once")
    return Check("link", "fail", "a name was created twice", advice)


def _check_lock(disk: LocalDisk) -> Check:
    """Check that flock keeps a second holder out."""
    advice = "mount the file system with locks, or use a local one"
    first, second = disk.open_lock("lock"), disk.open_lock("lock")
    try:
        taken, doubled = first.try_acquire(), second.try_acquire()
    except OSError as error:
        return Check("flock", "fail", str(error), advice)
    if taken and not doubled:
        return Check("flock", "ok", "locks keep a second writer out")
    return Check("flock", "fail", "locks don't keep a second writer out", advice)


def _check_sync(scratch: Path) -> Check:
    """Measure how long one acknowledgement waits for the disk."""
    median_ms = statistics.median(_sync_times_ms(scratch / "sync"))
    found = f"{median_ms:.2f} ms (median of {_SYNCS})"
    if median_ms <= _SLOW_SYNC_MS:
        return Check("fsync", "ok", found)
    return Check("fsync", "warn", found, 'send in batches, or open with durability="os"')


def _sync_times_ms(path: Path) -> list[float]:
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(os.urandom(_SYNC_BYTES))
            start = perf_counter()
            sync_data(file.fileno())
            times.append((perf_counter() - start) * 1000)
    return times


def check_futex() -> Check:
    """Check that the kernel wakes a waiting consumer, so that it needs no polling."""
    word = ctypes.c_uint32(1)
    start = perf_counter()
    # The word has changed from what the waiter expects, so a futex returns at once.
    futex.wait(ctypes.addressof(word), 0, 1.0)
    if futex.AVAILABLE and perf_counter() - start < 0.5:
        return Check("futex", "ok", "waiting consumers are woken by the kernel")
    return Check("futex", "warn", "not available", "waiting consumers poll every millisecond here")
