"""Staged files that are written later than they are placed: together, or beside commits."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar, Protocol

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.errors import ClosedError, UnavailableError
from kmq_storage.log.disk_errors import translated
from kmq_storage.objects.files import Files

#: The most files of one producer or task that are uploaded at once.
UPLOADS_MAX = 8


class Later(Protocol):
    """Writes files, by their ids; safe for any number of threads."""

    #: Whether `begin` returns at once.
    is_prompt: ClassVar[bool]

    def begin(self, file_id: bytes, contents: pa.Buffer) -> None:
        """Take a file to write."""

    def wait_for(self, file_ids: Collection[bytes]) -> None:
        """Return when these files are durable; raises the error when one can't be written."""

    def close(self) -> None:
        """Take no more files; those that were taken are still written."""


class Uploads:
    """Uploads of staged files to a bucket, several at once and beside commits."""

    is_prompt: ClassVar[bool] = True

    def __init__(self, files: Files) -> None:
        self._files = files
        # Threads start when they are needed, and end when this is closed or let go.
        self._pool = ThreadPoolExecutor(UPLOADS_MAX, thread_name_prefix="kmq-stage")
        self._begun: dict[bytes, Future[None]] = {}
        self._changing = threading.Lock()
        self._closed = False

    def begin(self, file_id: bytes, contents: pa.Buffer) -> None:
        """Begin an upload as soon as fewer than `UPLOADS_MAX` others are running."""
        try:
            begun = self._pool.submit(self._upload, file_id, contents)
        except RuntimeError:
            if self._closed:
                raise ClosedError("it was closed while this was sent: nothing is stored") from None
            raise
        with self._changing:
            self._begun[file_id] = begun

    def _upload(self, file_id: bytes, contents: pa.Buffer) -> None:
        with translated(self._files.url):
            self._files.stage(paths.staged_file(file_id), [contents], sync=True)

    def wait_for(self, file_ids: Collection[bytes]) -> None:
        """Wait until these files are uploaded; raises the error of a failed upload."""
        with self._changing:
            waiting = [self._begun.pop(each) for each in file_ids if each in self._begun]
        for each in waiting:
            each.result()

    def close(self) -> None:
        """See `Later`."""
        self._closed = True
        self._pool.shutdown(wait=False)


class Together:
    """Staged files on a disk, which wait in memory until many can be synced together."""

    is_prompt: ClassVar[bool] = False

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: dict[bytes, pa.Buffer] = {}
        #: What is being written, or was when a signal interrupted it.
        self._begun: list[bytes] = []
        self._writing = threading.Lock()

    def begin(self, file_id: bytes, contents: pa.Buffer) -> None:
        """Take a file; when many or large files wait, they are written first."""
        with self._writing:
            if self._has_enough(contents.size):
                self._write([*self._waiting])
            self._waiting[file_id] = contents

    def _has_enough(self, more: int) -> bool:
        size = sum(contents.size for contents in self._waiting.values())
        many = len(self._waiting) >= limits.STAGED_TOGETHER
        return bool(self._waiting) and (many or size + more > limits.WRITE_BYTES)

    def wait_for(self, file_ids: Collection[bytes]) -> None:
        """Write what waits, these files among them; UnavailableError when one of them can't be."""
        with self._writing:
            own = [each for each in file_ids if each in self._waiting]
            if not own:
                return
            try:
                self._write([*self._waiting])
            except UnavailableError:  # perhaps because of another one, whose owner is told then
                try:
                    self._write(own)
                finally:
                    for each in own:
                        self._waiting.pop(each, None)

    def close(self) -> None:
        """See `Later`: there is nothing to end."""

    def _write(self, file_ids: Iterable[bytes]) -> None:
        with translated(self._files.url):
            left = [paths.staged_file(each) for each in self._begun if each in self._waiting]
            self._files.remove(*left)  # what still waits is named by no commit
            self._begun = [*file_ids]
            new = {each: self._waiting[each] for each in self._begun}
            self._files.stage_together(
                [(paths.staged_file(each), [contents]) for each, contents in new.items()]
            )
        self._waiting = {k: v for k, v in self._waiting.items() if k not in new}
        self._begun = []
