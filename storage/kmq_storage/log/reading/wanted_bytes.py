"""The bytes of a place to read when only some columns are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kmq_storage.format.layout import Layout
from kmq_storage.format.packing import (
    HEAD_BYTES_MAX,
    PARTS_BYTES_MAX,
    PROVEN_BYTES_MIN,
    Part,
    parts_of,
)
from kmq_storage.format.records import OFFSET, TYPED, is_run
from kmq_storage.model import Chunk, Place

#: How many bytes are fetched ahead of a reader.
_AHEAD = 32 * 1024 * 1024
#: Fetching this many unneeded bytes costs less than another request.
_GAP = 512 * 1024


def near(places: Iterable[Place], layout: Layout) -> Iterator[Place]:
    """The first places, up to the number of bytes to fetch ahead."""
    length = 0
    for place in places:
        parts = wanted_parts(place, layout)
        length += sum(part.end - part.start for part in parts)
        if length > _AHEAD:
            return
        yield place


def spans(
    places: Iterable[Place], parts: Callable[[Place, Layout], Sequence[Part]], layout: Layout
) -> Iterator[tuple[str, int, int]]:
    """The file, position and length of these parts of places."""
    for place in places:
        where = place.location
        for start, end in ranges_of(parts(place, layout)):
            yield where.file, where.position + start, end - start


def wanted_ends(place: Place, layout: Layout) -> tuple[Part, ...]:
    """The head and end of an unsealed batch, which tell where its columns are.

    It is the whole of a short batch, and nothing if all columns are wanted.
    """
    length, kind = place.location.length, place.columns & (TYPED | OFFSET)
    unsealed = isinstance(place, Chunk) and kind == TYPED
    if not unsealed or not layout.is_partial or length < PROVEN_BYTES_MIN:
        return ()
    if length <= HEAD_BYTES_MAX + _GAP + PARTS_BYTES_MAX:
        return (_whole(place),)
    return Part(0, HEAD_BYTES_MAX, 0, 0), Part(length - PARTS_BYTES_MAX, length, 0, 0)


def wanted_columns(chunk: Chunk, layout: Layout) -> tuple[int, ...] | None:
    """The columns to read; None when the batch is read whole."""
    if not chunk.parts:
        return None
    dense = chunk.dense and not is_run(chunk.columns)
    return layout.wanted(chunk.columns, chunk.location.file, dense=dense)


def wanted_parts(place: Place, layout: Layout) -> Sequence[Part]:
    """The parts of a place to read and verify."""
    if not isinstance(place, Chunk):
        return (_whole(place),)
    return parts_of(place, wanted_columns(place, layout))


def _whole(place: Place) -> Part:
    return Part(0, place.location.length, 0, place.checksum)


def ranges_of(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Ranges that cover all parts; parts with little between them share a range."""
    found: list[tuple[int, int]] = []
    for part in parts:
        start = part.start
        if found and start - found[-1][1] <= _GAP:
            start, _ = found.pop()
        found.append((start, part.end))
    return found
