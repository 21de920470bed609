"""Sets of files that checkpoints and commits refer to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import LOG, PageRef
from kmq_storage.log.checkpoints.paging import repaged
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.files import Files

if TYPE_CHECKING:
    import numpy.typing as npt


def references_of(files: Files, state: StoreState) -> References:
    """The files that a reader's state refers to."""
    assert state.manifest is not None, "a reader's state has a manifest"
    found = References(files)
    found.add_pages(state.manifest.refs)
    found.add_recent(state)
    return found


def live_references(files: Files, state: StoreState) -> References:
    """The pages of a reader's state, and the files of the records that it still has.

    Files that were replaced, and those of trimmed and deleted records, are left out, though pages
    name them until the next checkpoint.
    """
    assert state.manifest is not None, "a reader's state has a manifest"
    found = References(files)
    found.add_ids(ref.page_id for ref in state.manifest.refs)
    pages = list(repaged(state.manifest, state))
    found.add_pages(page for page in pages if isinstance(page, PageRef))
    rows = (row for page in pages if not isinstance(page, PageRef) for _, row in page)
    found.add_ids(row.file for row in rows if row.kind != LOG)
    return found


class References:
    """A set of files.

    Only 8 bytes of each id are compared. Two ids that agree in these only keep a file too long.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.pages: set[bytes] = set()
        self._ids: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        self._sorted: npt.NDArray[np.uint64] | None = None
        self._log_files: list[int] = []

    def add_pages(self, refs: Iterable[PageRef], *, whole: bool = True) -> None:
        """Add pages and the files that their rows refer to.

        CorruptionError when a page can't be read; unless `whole`, its rows are left out instead.
        """
        refs = [ref for ref in refs if ref.page_id not in self.pages]
        manifest = Manifest(self._files, refs)
        for ref in refs:
            self.pages.add(ref.page_id)
            try:
                page = manifest.page(ref)
            except CorruptionError:
                if whole:
                    raise
                continue
            files, kinds = page.file_words(), page.column("kind")
            self._ids.append(files[kinds != LOG])
            self._log_files += np.unique(files[kinds == LOG]).tolist()
        self.add_ids(ref.page_id for ref in refs)

    def add_recent(self, state: StoreState) -> None:
        """Add the files of rows that are in no checkpoint yet."""
        rows = [
            row
            for topic in state.topics.values()
            for number in range(topic.partitions)
            for row in topic.index(number).recent_rows()
        ]
        self.add_ids(row.file for row in rows if row.kind != LOG)
        self._log_files += {_word(row.file) for row in rows if row.kind == LOG}

    def add_ids(self, ids: Iterable[bytes]) -> None:
        """Add files by their ids; empty ids are ignored."""
        self._sorted = None
        self._ids.append(np.fromiter(map(_word, filter(None, ids)), np.uint64))

    def has(self, file_id: bytes) -> bool:
        """Whether the set has the file with this id."""
        return self.has_all(np.array([_word(file_id)], np.uint64))

    def has_file(self, path: str) -> bool:
        """Whether the set has a file, by the id in its name."""
        file_id = paths.try_file_id(path)
        return file_id is not None and self.has(file_id)

    def has_all(self, words: npt.NDArray[np.uint64]) -> bool:
        """Whether the set has all of some files, by the first 8 bytes of their ids."""
        if self._sorted is None:
            self._sorted = np.unique(np.concatenate(self._ids))
        at = np.searchsorted(self._sorted, words)
        if not len(self._sorted):
            return not len(words)
        return bool((self._sorted[np.minimum(at, len(self._sorted) - 1)] == words).all())

    def lowest_log_file(self) -> int:
        """The first LSN of the oldest log file that rows refer to."""
        return min(self._log_files, default=1 << 62)


def _word(file_id: bytes) -> int:
    return int.from_bytes(file_id[:8], "little")
