"""Writing new files from buffers that are generated while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial

from kmq_storage import limits
from kmq_storage.objects.begun import begun
from kmq_storage.objects.file_io import (
    allocate,
    begin_writeback,
    make_folder,
    sync_data,
    sync_folder,
    write_all,
)
from kmq_storage.objects.files import Bytes

#: Buffers that are written with one call, and the number of their bytes.
_Group = tuple[list[memoryview], int]


def create_together(files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
    """Create files by their paths, and sync them and their names; after an error there is none.

    All are written before the first is synced: one write of the file system's journal then serves
    many of them. They stay open until then, as a failed write is told to those who have it open.
    """
    folders = sorted({os.path.dirname(path) for path, _ in files})
    make_folder(*folders)
    with ExitStack() as undone:
        with ExitStack() as opened:
            descriptors = [_created(path, buffers, opened, undone) for path, buffers in files]
            for fd in descriptors:
                sync_data(fd)
        for folder in folders:
            sync_folder(folder)
        undone.pop_all()


def _created(path: str, buffers: Iterable[Bytes], opened: ExitStack, undone: ExitStack) -> int:
    """Write a file; its descriptor is closed by `opened`, and `undone` removes the file."""
    fd = create(path)
    opened.callback(os.close, fd)
    undone.callback(_remove, path)
    _fill(fd, buffers, begin=True)
    begin_writeback(fd, 0, 0)  # of all that is left
    return fd


def create(path: str) -> int:
    """A descriptor of a new file; FileExistsError when the name is taken."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def fill(fd: int, buffers: Iterable[Bytes], *, sync: bool) -> None:
    """Write a new file, sync it if asked to, and close it in any case."""
    try:
        _fill(fd, buffers, begin=sync)
        if sync:
            sync_data(fd)
    finally:
        os.close(fd)


def _fill(fd: int, buffers: Iterable[Bytes], *, begin: bool) -> None:
    groups = _groups(buffers)
    group, size = next(groups, ([], 0))
    if size < limits.WRITE_BYTES:
        _write(fd, 0, group, size)
    else:
        _write_behind(fd, (group, size), groups, begin=begin)


def _write_behind(fd: int, group: _Group, rest: Iterator[_Group], *, begin: bool) -> None:
    """Write a large file in a separate thread, each group while the next one is generated.

    With `begin`, write-back of each group begins at once, so that a later sync has less to do.
    """
    position = 0
    with ThreadPoolExecutor(1, "kmq-write") as pool:
        while group[1]:
            written = begun(pool, partial(_write, fd, position, *group, begin=begin))
            try:
                position += group[1]
                group = next(rest, ([], 0))
            finally:
                _wait_for(written)
            written.result()


def _wait_for(written: Future[None]) -> None:
    """Wait for a write even if interrupted, as its descriptor could become another file's."""
    try:
        wait([written])
    except BaseException:
        _wait_for(written)
        raise


def _write(
    fd: int, position: int, buffers: list[memoryview], size: int, *, begin: bool = False
) -> None:
    if position or size > limits.INLINE_BATCH_BYTES_MAX:
        # Allocating the blocks first makes large writes three times as fast on ext4.
        allocate(fd, position, size)
    write_all(fd, position, buffers)
    if begin:
        begin_writeback(fd, position, size)


def _groups(buffers: Iterable[Bytes]) -> Iterator[_Group]:
    """The buffers in groups that are written with one call each.

    Each group begins at a multiple of WRITE_BYTES. So the page cache uses pages of 2 MiB for it,
    which cost a tenth as much to map as small ones.
    """
    group: list[memoryview] = []
    size = 0
    for buffer in buffers:
        view = memoryview(buffer)
        while size + view.nbytes >= limits.WRITE_BYTES:
            rest = limits.WRITE_BYTES - size
            yield [*group, view[:rest]], limits.WRITE_BYTES
            group, size, view = [], 0, view[rest:]
        group.append(view)
        size += view.nbytes
    if size:
        yield group, size
