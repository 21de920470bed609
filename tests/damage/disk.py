"""A store in a folder, and what a repair leaves of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from tests.support.damage import flip
from tests.support.storage import open_log


def opened(folder: Path) -> kmq.Store:
    """The store; a new one where there is none. Nobody looks after it."""
    return kmq.Store(open_log(LocalDisk(folder)), maintenance=False)


def repaired_store(folder: Path, lost: Sequence[int] = ()) -> kmq.Store:
    """The store behind a repair, whole, of which these frames of the log were lost, or all."""
    (log,) = (folder / "log").glob("0*.log")
    for frame in lost:
        flip(log, frame + 20)
    if not lost:
        log.write_bytes(bytes(log.stat().st_size))
    with opened(folder) as store:
        assert store.repair(drop_damaged=True).damage == []
    store = opened(folder)
    assert store.verify(deep=True).damage == []
    return store
