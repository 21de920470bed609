"""The manifest of a checkpoint: finds rows by offset or time, and loads only the needed pages."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.manifest import Key, Page, PageRef, decode_page
from kmq_storage.log.disk_errors import unavailable
from kmq_storage.log.proven_reads import proven
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in

#: The number of decoded pages that are kept; each keeps about 400 KB mapped.
_PAGES_KEPT = 64


class Manifest:
    """Rows of all partitions at one checkpoint; safe for several threads."""

    def __init__(self, files: Files, refs: Sequence[PageRef]) -> None:
        self._files = files
        self.refs = list(refs)
        self._firsts = [ref.first for ref in refs]
        self._pages: OrderedDict[bytes, Page] = OrderedDict()

    def sharing(self, refs: Sequence[PageRef]) -> Manifest:
        """Other pages of the same store; both keep the decoded pages together."""
        other = Manifest(self._files, refs)
        other._pages = self._pages
        return other

    def page(self, ref: PageRef) -> Page:
        """A leaf page; CorruptionError when it is damaged, with `missing` if it doesn't exist."""
        page = self._pages.get(ref.page_id)
        if page is None:
            file = paths.page_file(ref.page_id)
            page = self._proven(file, ref)
            self._pages[ref.page_id] = page
            if len(self._pages) > _PAGES_KEPT:
                self._pages.popitem(last=False)
        return page

    def _proven(self, file: str, ref: PageRef) -> Page:
        try:
            return proven(self._files, file, lambda: decode_page(self._read(file), ref))
        except FormatVersionError:
            raise
        except CorruptionError as error:
            message = f"{error.message}; `kmq repair` makes it anew from what it names"
            raise CorruptionError(message, **error.context) from error

    def _read(self, file: str) -> pa.Buffer:
        try:
            return brought_in(self._files.map(file))
        except FileNotFoundError as error:
            raise CorruptionError(
                f"manifest page {file} is missing", file=file, missing=True
            ) from error
        except OSError as error:
            raise unavailable(error, self._files.url) from error

    def spans(
        self, key: Key, offset: int, end: int, *, since: int | None = None
    ) -> Iterator[tuple[Page, int, int]]:
        """Rows of a partition that may have offsets in [offset, end), in order.

        They come as a page and the index range of the rows in it. Pages with only records older
        than `since` (UTC us) are left out.
        """
        for ref in self.refs_of(key, offset, end):
            if since is not None and ref.max_timestamp < since:
                continue
            page = self.page(ref)
            low, high = page.spans.get(key, (0, 0))
            bases = page.bases[low:high]
            from_row = max(int(bases.searchsorted(offset, "right")) - 1, 0)
            to_row = int(bases.searchsorted(end))
            if from_row < to_row:
                yield page, low + from_row, low + to_row

    def refs_of(self, key: Key, offset: int, end: int) -> Iterator[PageRef]:
        """The pages that may have rows of a partition with offsets in [offset, end)."""
        return self.refs_between((key, offset), (key, end))

    def refs_between(self, first: tuple[Key, int], behind: tuple[Key, int]) -> Iterator[PageRef]:
        """The pages that may have rows between two places, each a partition and an offset."""
        at = max(bisect_right(self._firsts, first) - 1, 0)
        while at < len(self.refs) and self._firsts[at] < behind:
            if self.refs[at].last[0] >= first[0]:
                yield self.refs[at]
            at += 1
