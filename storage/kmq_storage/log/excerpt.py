"""What another process needs to find some records: it replays no log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kmq_storage.format.manifest import PageRef
from kmq_storage.log.manifest import Manifest
from kmq_storage.log.offset_index import Gap, OffsetIndex
from kmq_storage.log.row_table import rows_of_packed
from kmq_storage.model import Place
from kmq_storage.objects.files import Files


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Finds records of some partitions of a topic, which share pages."""

    topic_id: bytes
    refs: tuple[PageRef, ...]
    #: By partition, the rows that are in no page, packed: there may be very many.
    recent: Mapping[int, bytes]
    gaps: Mapping[int, tuple[Gap, ...]]

    def pages(self, disk: Files) -> Manifest:
        """The pages that it refers to, on a disk."""
        return Manifest(disk, self.refs)

    def places(self, pages: Manifest, partition: int, start: int, end: int) -> list[Place]:
        """Where the records of a partition with offsets in [start, end) stand."""
        index = OffsetIndex((self.topic_id, partition), pages)
        index.gaps = list(self.gaps.get(partition, ()))
        for row in rows_of_packed(self.recent.get(partition, b"")):
            index.append(row)
        return index.between(start, end)


def excerpt_of(parts: Sequence[tuple[OffsetIndex, int, int]]) -> Excerpt:
    """What finds records of a topic: partitions ascending, offsets in [start, end)."""
    (first, start, _), (last, _, end) = parts[0], parts[-1]
    refs = first.manifest.refs_between((first.key, start), (last.key, end))
    spans: dict[OffsetIndex, tuple[int, int]] = {}
    for index, low, high in parts:
        if index.recent.bases or index.gaps:
            spans[index] = (min(spans.get(index, (low,))[0], low), high)
    recent = {index.key[1]: index.recent.packed(*span) for index, span in spans.items()}
    gaps = {index.key[1]: tuple(index.gaps) for index in spans if index.gaps}
    return Excerpt(first.key[0], tuple(refs), recent, gaps)
