"""Uploads of staged files to a bucket, several at once and beside commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

#: The most files of one producer or task that are uploaded at once.
UPLOADS_MAX = 8


class Uploads:
    """Uploads by the ids of their files; safe for any number of threads."""

    def __init__(self) -> None:
        # Threads start when they are needed, and end with this object.
        self._pool = ThreadPoolExecutor(UPLOADS_MAX, thread_name_prefix="kmq-stage")
        self._begun: dict[bytes, Future[None]] = {}
        self._changing = threading.Lock()

    def begin(self, file_id: bytes, upload: Callable[[], None]) -> None:
        """Begin an upload as soon as fewer than `UPLOADS_MAX` others are running."""
        begun = self._pool.submit(upload)
        with self._changing:
            self._begun[file_id] = begun

    def wait_for(self, file_ids: Collection[bytes]) -> None:
        """Wait until these files are uploaded; raises the error of a failed upload."""
        with self._changing:
            waiting = [self._begun.pop(each) for each in file_ids if each in self._begun]
        for each in waiting:
            each.result()
