"""Pins: a long reader keeps the files of an LSN for a while, whatever maintenance does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kmq_storage import paths
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.objects.files import Files


@contextmanager
def pinned(log: CommitLog, lsn: int, seconds: float) -> Iterator[None]:
    """Keep what the state of an LSN refers to while the block runs, at most for some seconds."""
    pin_id = log.environment.new_uuid().bytes
    expires = log.disk.now() + round(seconds * 1e6)
    file = paths.pin_file(pin_id)
    log.disk.publish(file, [json.dumps({"lsn": lsn, "expires": expires}).encode()], sync=True)
    try:
        yield
    finally:
        log.disk.remove(file)


def pinned_lsn(disk: Files, now: int, expire: Callable[[str], None]) -> int | None:
    """The lowest LSN that somebody keeps at this time (UTC us); tells of pins that are over."""
    lsns = []
    for name in disk.list(paths.PIN_FOLDER):
        file = f"{paths.PIN_FOLDER}/{name}"
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            pin = json.loads(disk.read(file))
            if pin["expires"] < now:
                expire(file)
            else:
                lsns.append(int(pin["lsn"]))
    return min(lsns, default=None)
