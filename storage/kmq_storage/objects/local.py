"""A store in a folder of a local disk.

A file is published by writing a temporary file, fsync, link, and fsync of the folder. fsspec's
local create-if-absent lets two writers win, and `open("xb")` shows incomplete files to readers.
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
    sync_data,
    sync_folder,
    write_all,
)
from kmq_storage.objects.files import Bytes, Files, FoundFile
from kmq_storage.objects.flock import FileLock
from kmq_storage.objects.mapped_log import MappedLogFile
from kmq_storage.objects.mapped_words import MappedWords
from kmq_storage.objects.mapping import mapped_file
from kmq_storage.objects.memory import MemoryWords
from kmq_storage.objects.new_file import create, create_together, fill

_ELSEWHERE = "the folder was moved, removed or replaced since the store was opened"
#: The unit of `st_blocks`, whatever the blocks of the file system are.
_BLOCK = 512
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LocalDisk:
    """A folder on a local file system."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root = root
        self.url = str(root)
        self.read_only = read_only
        #: Device and inode of the folder, once it exists.
        self._folder: tuple[int, int] | None = None

    def _path(self, path: str) -> str:
        return os.path.join(self.url, path)

    def _place(self, path: str) -> str:
        """The path of a file that is to be created, removed or looked for.

        OSError (ESTALE) when the folder was moved away. Another folder may have its name, for
        example after a restore in place, and no file must be changed there.
        """
        known = self._folder  # read first, as another thread may be creating the folder
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
        """See `Files.named`; on a disk a file has its own name."""
        return path

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        try:
            os.stat(self._path(path))
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """See `Files.list`."""
        try:
            return sorted(os.listdir(self._place(folder)))
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """See `Files.walk`."""
        return _walked(self._place(folder), folder)

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """None: a clone on a disk has own links to shared files."""
        return iter(())

    def now(self) -> int:
        """See `Files.now`; a new file's date tells."""
        from tempfile import TemporaryFile  # slow to import, and rarely needed

        with TemporaryFile(dir=self._place("")) as file:
            return os.fstat(file.fileno()).st_mtime_ns // 1000

    def read(self, path: str) -> bytes:
        """See `Files.read`; unreadable parts are zeros, which readers take for damage."""
        fd = os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_or_zeros(fd, 0, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """See `Files.map`; only a log file's map may still change."""
        return mapped_file(self._place(path))

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """False: on a disk, nothing has to be fetched."""
        return False

    def afresh(self) -> AbstractContextManager[None]:
        """A block without effect: nothing is cached."""
        return nullcontext()

    def forget(self, path: str) -> bool:
        """See `Files.forget`; always False, as a disk caches nothing."""
        return False

    def bucket_facts(self) -> None:
        """None: this is no bucket."""

    def foreign_file(self) -> str | None:
        """See `Files.foreign_file`; hidden and temporary files don't count."""
        with suppress(FileNotFoundError), os.scandir(self.url) as entries:
            return next(filter(_is_foreign, (e.name for e in entries if e.is_file())), None)
        return None

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """See `Files.publish`."""
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
        """See `Files.stage`."""
        target = self._place(path)
        if sync:
            create_together([(target, buffers)])
            return
        make_folder(os.path.dirname(target))
        fd = create(target)
        try:
            fill(fd, buffers, sync=False)
        except BaseException:  # including errors of the iterator of buffers
            with suppress(OSError):
                os.unlink(target)
            raise

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        """See `Files.stage_together`."""
        create_together([(self._place(path), buffers) for path, buffers in files])

    def sync_staged(self, paths: Iterable[str]) -> None:
        """See `Disk.sync_staged`."""
        folders = set()
        for path in paths:
            target = self._path(path)
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(fd)
            finally:
                os.close(fd)
            folders.add(os.path.dirname(target))
        for folder in folders:
            sync_folder(folder)

    def stage_again(self, path: str) -> None:
        """See `Disk.stage_again`."""
        target = self._place(path)
        contents = self.read(path)
        temporary = f"{target}.tmp"  # only the holder of the sync lock does this
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fill(fd, [contents], sync=True)
        os.rename(temporary, target)
        sync_folder(os.path.dirname(target))

    def make_folders(self, *folders: str) -> None:
        """See `Disk.make_folders`."""
        make_folder(*map(self._place, folders))

    def link(self, path: str, source: Files, source_path: str) -> None:
        """See `Disk.link`."""
        if not isinstance(source, LocalDisk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source.url)
        target, original = self._place(path), source._path(source_path)
        with suppress(FileExistsError):
            try:
                os.link(original, target)
            except FileNotFoundError:  # perhaps only the target's folder is missing
                make_folder(os.path.dirname(target))
                os.link(original, target)

    def open_log(self, path: str, size: int, *, create: bool) -> MappedLogFile:
        """See `Disk.open_log`."""
        target = self._place(path)
        if create and not os.path.exists(target):
            self._create_log(target, size)
        return MappedLogFile(target, read_only=self.read_only)

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """See `Disk.replace_log`."""
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

    def check_there(self) -> None:
        """See `Disk.check_there`."""
        self._place("")

    def boot_id(self) -> str:
        """See `Disk.boot_id`."""
        with suppress(OSError):
            return _BOOT_ID.read_text().strip()
        return ""

    def open_words(self, path: str, count: int) -> SharedWords:
        """See `Disk.open_words`."""
        try:
            return MappedWords(self._place(path), count, read_only=self.read_only)
        except (FileNotFoundError, ValueError):  # missing, cut, or unreadable
            if not self.read_only:
                raise
            return MemoryWords(count)  # no writer of this boot: the page would tell nothing

    def open_lock(self, path: str, *, seconds: float | None = None) -> FileLock:
        """Open or create a lock."""
        return FileLock(self._place(path), read_only=self.read_only)

    def remove(self, *paths: str) -> None:
        """See `Files.remove`."""
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
        """See `Disk.sync_names`."""
        with suppress(FileNotFoundError):
            sync_folder(self._path(folder))

    def close(self) -> None:
        """Do nothing: files and maps are released by their own handles."""


def _walked(place: str, folder: str) -> Iterator[FoundFile]:
    """The files below a directory, with paths as in a folder of the store.

    Folders of others that may not be read, as `lost+found` at the root of a disk, are left out.
    """
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                with nullcontext() if _is_own(path) else suppress(PermissionError):
                    yield from _walked(entry.path, path)
                continue
            with suppress(FileNotFoundError):
                yield _found(path, entry.stat(follow_symlinks=False))


def _is_own(folder: str) -> bool:
    return folder.partition("/")[0] in paths.FOLDERS


def _found(path: str, facts: os.stat_result) -> FoundFile:
    on_disk = facts.st_blocks * _BLOCK
    times, names = facts.st_mtime_ns // 1000, facts.st_nlink
    return FoundFile(path, facts.st_size, times, names, min(on_disk, facts.st_size))


def _is_foreign(name: str) -> bool:
    own = (paths.STORE_FILE, paths.BEGUN, paths.CLONING_FILE)
    return not (name in own or name.startswith(".") or name.endswith(".tmp"))
