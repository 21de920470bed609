"""A store in a folder of a local disk.

Files appear by temp file, fsync, link and fsync of the folder, because fsspec's local
create-if-absent lets two writers win and `open("xb")` shows half files to readers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.objects.disk import SharedWords
from kmq_storage.objects.file_io import (
    allocate,
    make_folder,
    read_or_zeros,
    sync_folder,
    write_all,
)
from kmq_storage.objects.files import Bytes, Files, FoundFile
from kmq_storage.objects.flock import FileLock
from kmq_storage.objects.mapped_log import MappedLogFile
from kmq_storage.objects.mapped_words import MappedWords
from kmq_storage.objects.mapping import mapped_file
from kmq_storage.objects.memory import MemoryWords
from kmq_storage.objects.new_file import fill

_ELSEWHERE = "the folder was moved, removed or replaced since the store was opened"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LocalDisk:
    """A folder on a local file system."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root = root
        self.url = str(root)
        self.read_only = read_only
        #: Which folder it is, once it is there.
        self._folder: tuple[int, int] | None = None

    def _path(self, path: str) -> str:
        return os.path.join(self.url, path)

    def _place(self, path: str) -> str:
        """The path of a file that is to be made, removed or looked for: in this folder.

        OSError (ESTALE) when it was moved away, though another one may have its name by now, as
        after a restore in place: there nothing is to be made or removed.
        """
        known = self._folder  # before the look: another thread may be making it
        try:
            facts = os.stat(self.url)
        except FileNotFoundError:
            here = None
        else:
            here = facts.st_dev, facts.st_ino
        if known is None:
            self._folder = here or self._folder
        elif known != here:
            raise OSError(errno.ESTALE, _ELSEWHERE, self.url)
        return self._path(path)

    def named(self, path: str) -> str:
        """The same name: every file is where its path says."""
        return path

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        try:
            os.stat(self._path(path))
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; none when the folder is missing."""
        try:
            return sorted(os.listdir(self._place(folder)))
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The files in a folder and the folders below it, by path; none when it is missing."""
        return _walked(self._place(folder), folder)

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """None: what a clone shares it has by links of its own."""
        return iter(())

    def now(self) -> int:
        """The time by the clock that files are dated with, UTC microseconds."""
        from tempfile import TemporaryFile  # slow to import, and few need it

        with TemporaryFile(dir=self._place("")) as file:
            return os.fstat(file.fileno()).st_mtime_ns // 1000

    def read(self, path: str) -> bytes:
        """A whole small file; zeros where the disk can't read it, which are damage to readers."""
        fd = os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_or_zeros(fd, 0, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """A whole file without copying; only a log file may still change, in place."""
        return mapped_file(self._place(path))

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """Mapping costs nothing here."""
        return False

    def afresh(self) -> AbstractContextManager[None]:
        """Nothing is kept beside what is there."""
        return nullcontext()

    def forget(self, path: str) -> bool:
        """Nothing is fetched."""
        return False

    def bucket_facts(self) -> None:
        """This is no bucket."""

    def foreign_file(self) -> str | None:
        """A file that no store puts into its folder; hidden and unfinished ones don't count."""
        with suppress(FileNotFoundError), os.scandir(self.url) as entries:
            return next(filter(_is_foreign, (e.name for e in entries if e.is_file())), None)
        return None

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create a file whole or not at all; False when the name is taken."""
        target = self._place(path)
        folder = os.path.dirname(target)
        make_folder(folder)
        from tempfile import mkstemp

        fd, temporary = mkstemp(suffix=".tmp", dir=folder)
        try:
            fill(fd, buffers, sync=sync)
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        if sync:
            sync_folder(folder)
        return True

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Create a file under a name nobody else uses and nobody reads before a commit names it."""
        target = self._place(path)
        folder = os.path.dirname(target)
        make_folder(folder)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fill(fd, buffers, sync=sync)
        except BaseException:  # also what the maker of the buffers raises
            with suppress(OSError):
                os.unlink(target)
            raise
        if sync:
            sync_folder(folder)

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Bring files to disk that were staged without sync, and their names."""
        folders = set()
        for path in paths:
            target = self._path(path)
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
            folders.add(os.path.dirname(target))
        for folder in folders:
            sync_folder(folder)

    def stage_again(self, path: str) -> None:
        """Write a staged file whose sync failed into fresh blocks, synced, under the same name."""
        target = self._place(path)
        contents = self.read(path)
        temporary = f"{target}.tmp"  # only the holder of the sync lock does this
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fill(fd, [contents], sync=True)
        os.rename(temporary, target)
        sync_folder(os.path.dirname(target))

    def link(self, path: str, source: Files, source_path: str) -> None:
        """Have a file of a store on the same file system, under a name of our own; not synced."""
        if not isinstance(source, LocalDisk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source.url)
        target, original = self._place(path), source._path(source_path)
        with suppress(FileExistsError):
            try:
                os.link(original, target)
            except FileNotFoundError:  # the folder, perhaps
                make_folder(os.path.dirname(target))
                os.link(original, target)

    def open_log(self, path: str, size: int, *, create: bool) -> MappedLogFile:
        """Open a log file, or create it with this size if it is missing."""
        target = self._place(path)
        if create and not os.path.exists(target):
            self._create_log(target, size)
        return MappedLogFile(target, read_only=self.read_only)

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """Put a log file that begins with these bytes, synced, in place of the one of this name."""
        self._create_log(self._place(path), size, buffers)

    def _create_log(self, target: str, size: int, buffers: Sequence[Bytes] = ()) -> None:
        folder = os.path.dirname(target)
        make_folder(folder)
        temporary = f"{target}.tmp"  # only the holder of the append lock creates log files
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
            written = sum(memoryview(buffer).nbytes for buffer in buffers)
            allocate(fd, 0, min(size, written + limits.PREALLOCATE_BYTES))
            write_all(fd, 0, buffers)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, target)
        sync_folder(folder)

    def boot_id(self) -> str:
        """Differs after every start of the machine: what was only in memory is gone then."""
        with suppress(OSError):
            return _BOOT_ID.read_text().strip()
        return ""

    def open_words(self, path: str, count: int) -> SharedWords:
        """Open or create a page of shared words; zeros when new."""
        try:
            return MappedWords(self._place(path), count, read_only=self.read_only)
        except (FileNotFoundError, ValueError):  # missing, cut short, or not to be read
            if not self.read_only:
                raise
            return MemoryWords(count)  # nobody of this boot wrote: the page would say nothing

    def open_lock(self, path: str, *, seconds: float | None = None) -> FileLock:
        """Open or create a lock."""
        return FileLock(self._place(path), read_only=self.read_only)

    def remove(self, *paths: str) -> None:
        """Delete files, so that no crash brings them back; nothing happens to missing ones."""
        folders = set()
        try:
            for path in paths:
                target = self._place(path)
                with suppress(FileNotFoundError):
                    os.unlink(target)
                    folders.add(os.path.dirname(target))
        finally:
            for folder in folders:
                sync_folder(folder)

    def sync_names(self, folder: str) -> None:
        """Bring to disk which files were made and removed in a folder, whoever did it."""
        with suppress(FileNotFoundError):
            sync_folder(self._path(folder))

    def close(self) -> None:
        """Maps and files are given back by their own handles."""


def _walked(place: str, folder: str) -> Iterator[FoundFile]:
    """The files below a place, named as what stands in a folder of the store."""
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walked(entry.path, path)
                continue
            with suppress(FileNotFoundError):
                facts = entry.stat(follow_symlinks=False)
                yield FoundFile(path, facts.st_size, facts.st_mtime_ns // 1000, facts.st_nlink)


def _is_foreign(name: str) -> bool:
    own = (paths.STORE_FILE, paths.BEGUN, paths.CLONING_FILE)
    return not (name in own or name.startswith(".") or name.endswith(".tmp"))
