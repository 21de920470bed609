"""Finding segments by their names and contents, without a manifest."""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.layout import Layout
from kmq_storage.format.manifest import SEGMENT, Key, Row
from kmq_storage.format.records import RUN, SEALED
from kmq_storage.format.segment import SegmentFooter, decode_footer, end_of_run, schemas_of
from kmq_storage.format.written_by import FORMAT, check_metadata
from kmq_storage.integrity.files.runs import beginnings_in
from kmq_storage.integrity.second_looks import whole_file
from kmq_storage.maintenance.clones import shared_files
from kmq_storage.objects.files import Files, FoundFile

_PATH = re.compile(
    rf"{paths.SEGMENT_FOLDER}/([0-9a-f]{{32}})/(\d+)/(\d{{20}})-[0-9a-f]{{32}}\.arrow\Z"
)
#: The position behind the magic of an Arrow file.
_HEAD_AT = 8
_LENGTH_AT, _LENGTH_BYTES = 10, 4


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment with a valid footer; the columns of `row` are still open."""

    topic_id: bytes
    partition: int
    topic: str
    row: Row
    #: The schema versions of a typed topic that the segment tells.
    schemas: tuple[str, ...]
    #: The columns of its batches.
    schema: pa.Schema
    #: Whether it is a run made by a trim, in which queues begin at an index above 0.
    begun: bool
    #: Whether its batches, the bytes before them, and its format version are valid, too.
    whole: bool

    def row_of(self, layout: Layout) -> Row | None:
        """The manifest's row; None when no version of the topic's schema has its columns."""
        for columns in layout.sealed:
            if layout.stored(columns, self.topic).equals(self.schema):
                return replace(self.row, columns=columns | self.row.columns & RUN)
        return None


def find_segments(files: Files, store_id: uuid.UUID) -> Iterator[FoundSegment]:
    """All segments with valid footers, including those that a clone shares.

    FormatVersionError for a segment that a newer kmq wrote.
    """
    shared = shared_files(files, store_id, paths.SEGMENT_FOLDER)
    for file in chain(files.walk(paths.SEGMENT_FOLDER), shared):
        found = try_segment(files, file)
        if found is not None:
            yield found


def named_ends(files: Files, store_id: uuid.UUID) -> Iterator[tuple[Key, int]]:
    """The least end of each partition, by the names of its segments, damaged ones included.

    The first offset of a segment, which its name tells, was given out for certain.
    """
    shared = shared_files(files, store_id, paths.SEGMENT_FOLDER)
    for file in chain(files.walk(paths.SEGMENT_FOLDER), shared):
        match = _PATH.match(file.path)
        if match is not None:
            topic_id, partition, base = match.groups()
            yield (bytes.fromhex(topic_id), int(partition)), int(base) + 1


def try_segment(files: Files, file: FoundFile) -> FoundSegment | None:
    """The segment in a file; None for another file, a damaged footer or a missing file.

    FormatVersionError when a newer kmq wrote it, OSError when a bucket doesn't answer.
    """
    match = _PATH.match(file.path)
    if match is None:
        return None
    found = _try_found(files, file, match)
    if not (found and found.whole) and files.forget(file.path):
        found = _try_found(files, file, match)
    return found


def _try_found(files: Files, file: FoundFile, match: re.Match[str]) -> FoundSegment | None:
    contents = whole_file(files, file.path)
    try:
        return None if contents is None else _found(contents, file, match)
    except FormatVersionError:
        raise
    except (CorruptionError, pa.ArrowException, OSError, KeyError, ValueError):
        return None


def _found(contents: pa.Buffer, file: FoundFile, match: re.Match[str]) -> FoundSegment:
    topic_id, partition, base = match.groups()
    reader = pa.ipc.open_file(contents)
    says_version = _says_version(reader.schema, contents, file.path)
    footer, end = _footer(contents, file), end_of_run(reader.schema)
    row = _row(contents, file, footer, int(base), end)
    if not says_version:  # a wrong checksum, so that readers don't take the footer for valid
        row = replace(row, checksum=row.checksum ^ 1)
    return FoundSegment(
        topic_id=bytes.fromhex(topic_id),
        partition=int(partition),
        topic=(reader.schema.metadata or {})[b"kmq.topic"].decode(),
        row=row,
        schemas=schemas_of(reader),
        schema=reader.schema,
        begun=_is_begun(contents, footer, file.path),
        whole=says_version and _is_whole(contents, footer),
    )


def _says_version(schema: pa.Schema, contents: pa.Buffer, file: str) -> bool:
    """Whether the format version in the footer is valid; FormatVersionError for a newer one.

    The head of the file has the version, too. If the head has the current version, a newer one in
    the footer is damage.
    """
    try:
        check_metadata(schema.metadata, file)
    except FormatVersionError:
        if not _head_is_known(contents, file):
            raise
        return False
    except CorruptionError:
        return False
    return True


def _head_is_known(contents: pa.Buffer, file: str) -> bool:
    """Whether the head of a file tells that this format version wrote it."""
    with suppress(CorruptionError, pa.ArrowException, OSError):
        metadata = pa.ipc.open_stream(contents.slice(_HEAD_AT)).schema.metadata
        check_metadata(metadata, file)
        return FORMAT in (metadata or {})
    return False


def _is_begun(contents: pa.Buffer, footer: SegmentFooter, file: str) -> bool:
    """Whether queues begin at an index above 0 in a run; False if this can't be read."""
    try:
        return bool(beginnings_in(contents, footer, file).indexes.any())
    except CorruptionError:
        return False


def _footer(contents: pa.Buffer, file: FoundFile) -> SegmentFooter:
    length = contents.slice(contents.size - _LENGTH_AT, _LENGTH_BYTES).to_pybytes()
    tail = contents.slice(contents.size - _LENGTH_AT - int.from_bytes(length, "little"))
    file_id = paths.segment_id(file.path)
    return decode_footer(tail, file.path, file_id, columns=SEALED, expected=None)


def _row(
    contents: pa.Buffer, file: FoundFile, footer: SegmentFooter, base: int, end: int | None
) -> Row:
    """The row of a segment; a run's metadata tells its end, and it may have no records."""
    chunks = footer.chunks
    if not (chunks or footer.beginnings):
        raise CorruptionError(f"{file.path} has no batches", file=file.path)
    position = footer.end
    return Row(
        base_offset=base,
        end_offset=chunks[-1].end_offset if end is None else end,
        rows=sum(chunk.rows for chunk in chunks),
        kind=SEGMENT,
        file=paths.segment_id(file.path),
        position=position,
        length=contents.size - position,
        checksum=checksum(contents.slice(position)),
        columns=SEALED if end is None else SEALED | RUN,
        min_timestamp=min((chunk.min_timestamp for chunk in chunks), default=0),
        max_timestamp=max((chunk.max_timestamp for chunk in chunks), default=0),
        time=file.modified,
        size=sum(chunk.size for chunk in chunks),
    )


def _is_whole(contents: pa.Buffer, footer: SegmentFooter) -> bool:
    places = [(chunk.location, chunk.checksum) for chunk in footer.chunks]
    head = contents.slice(0, places[0][0].position) if places else None
    return (head is None or checksum(head) == footer.head_checksum) and all(
        checksum(contents.slice(place.position, place.length)) == expected
        for place, expected in places
    )


@dataclass(slots=True)
class FoundRows:
    """Rows for all records that were found, by partition; rows of a partition may overlap."""

    rows: dict[Key, list[Row]] = field(default_factory=dict)
    #: The files of runs in which queues begin at an index above 0.
    begun: set[bytes] = field(default_factory=set)
    #: The files of segments with damaged batches.
    damaged: set[bytes] = field(default_factory=set)

    def note(self, key: Key, row: Row) -> None:
        """Note a row that a partition has or had."""
        self.rows.setdefault(key, []).append(row)

    def note_segment(self, segment: FoundSegment, row: Row) -> None:
        """Note a segment with its row."""
        self.note((segment.topic_id, segment.partition), row)
        self.begun |= {row.file} if segment.begun else set()
        self.damaged |= set() if segment.whole else {row.file}

    def distinct(self, rows: Sequence[Row]) -> list[Row]:
        """A choice among the rows without overlaps; see `without_overlaps`."""
        return without_overlaps(rows, self.begun, self.damaged)


def without_overlaps(
    rows: Sequence[Row], begun: Collection[bytes], damaged: Collection[bytes]
) -> list[Row]:
    """Choose rows without overlaps.

    The best choice covers the most offsets, then has the fewest offsets in `damaged` files, and
    then the fewest rows. `begun` are the files of runs that trims made. A row that begins before
    such a run and reaches into it is never chosen, since its records were trimmed.
    """
    starts = [row.base_offset for row in rows if row.file in begun]
    usable = [
        row for row in rows if not any(row.base_offset < at < row.end_offset for at in starts)
    ]
    usable.sort(key=lambda row: (row.end_offset, row.file not in begun))
    ends = [row.end_offset for row in usable]
    #: The value of the best choice among the rows before each, and the number of rows that end
    #: before each begins.
    best, before = [(0, 0, 0)], list[int]()
    for number, row in enumerate(usable):
        before.append(bisect_right(ends, row.base_offset, hi=number))
        covered, harmed, count = best[before[-1]]
        length = row.end_offset - row.base_offset
        lost = length if row.file in damaged else 0
        best.append(max(best[-1], (covered + length, harmed - lost, count - 1)))
    chosen, at = list[Row](), len(usable)
    while at:
        if best[at] == best[at - 1]:
            at -= 1
        else:
            chosen.append(usable[at - 1])
            at = before[at - 1]
    return chosen[::-1]
