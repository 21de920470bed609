"""Checks of runs: their directories, and what is left of a run with damaged batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.layout import Layout
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.queue_directory import BeginningList, Directory, Listed, Table
from kmq_storage.format.queue_table import Beginnings, beginnings_of_all
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.integrity.files.batches import stored_batch
from kmq_storage.integrity.report import Damage
from kmq_storage.log.reading.damaged_runs import messages_in_words
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.reading.runs import RunByOffset, run_offsets
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Segment
from kmq_storage.objects.mapping import brought_in

_OFFSETS = Layout(only=("offset",))


class RunFile:
    """The directory of one run in the contents of its file."""

    def __init__(self, contents: pa.Buffer, footer: SegmentFooter, segment: Segment) -> None:
        self._contents = contents
        self._file = segment.location.file
        if footer.directory is None:
            raise CorruptionError(f"{self._file} is a run without a directory")
        listed = self._message(footer.directory)
        self._directory = Directory(listed, footer.directory, self._file, segment.rows)
        last = footer.chunks[-1].location if footer.chunks else None
        self._list = footer.directory
        #: Where the first block begins; without records there is none.
        self._start = self._list.position if last is None else last.position + last.length
        self._beginnings: BeginningList | None = None
        if footer.beginnings is not None:
            listed = self._message(footer.beginnings)
            self._beginnings = BeginningList(listed, footer.beginnings, self._file)
        self._last = footer.beginnings

    def _message(self, place: MessagePlace) -> pa.Buffer:
        if place.end > self._contents.size:
            raise CorruptionError(f"{self._file} is shorter than its directory says")
        return brought_in(self._contents.slice(place.position, place.length))

    def check(self) -> None:
        """CorruptionError when a block is damaged, or blocks don't follow each other."""
        self._check(self._directory, self._start, self._list)
        if self._beginnings is not None and self._last is not None:
            self._check(self._beginnings, self._list.end, self._last)

    def _check(self, listed: Listed[Table], position: int, behind: MessagePlace) -> None:
        """CorruptionError unless there are valid blocks from a position up to their list."""
        for block in range(len(listed)):
            place = listed.place(block)
            if place.position != position:
                raise CorruptionError(f"blocks of the directory of {self._file} leave a gap")
            listed.decoded(block, self._message(place))
            position = place.end
        if position != behind.position:
            raise CorruptionError(f"the directory of {self._file} leaves a gap")


def beginnings_in(contents: pa.Buffer, footer: SegmentFooter, file: str) -> Beginnings:
    """The queues that begin anew in a run; CorruptionError when they can't be read."""

    def message(place: MessagePlace) -> pa.Buffer:
        return contents.slice(place.position, place.length)

    if footer.beginnings is None:
        return Beginnings.none()
    listed = BeginningList(message(footer.beginnings), footer.beginnings, file)
    blocks = range(len(listed))
    return beginnings_of_all([listed.decoded(n, message(listed.place(n))) for n in blocks])


def check_directory(
    contents: pa.Buffer, footer: SegmentFooter, segment: Segment, whole: Damage
) -> Iterator[Damage]:
    """Damage in the directory of a run."""
    try:
        RunFile(contents, footer, segment).check()
    except CorruptionError as error:
        yield replace(whole, reason=error.message)


def of_run(
    damage: Damage,
    chunks: Sequence[Chunk],
    segment: Segment,
    runs: Callable[[], Sequence[RunIndex]],
) -> Damage:
    """Damage of batches of the last of some runs: their records are anywhere in the run's offsets.

    Their messages are named where it is told what came before them.
    """
    named = ""
    with suppress(CorruptionError):
        if known := runs():
            base = segment.base_offset
            rows = ((first - base, behind - base) for first, behind in _spans(chunks))
            spans = "; from ".join(messages_in_words(known, *each) for each in rows)
            named = f" (messages of the queues: from {spans})"
    start, end = segment.base_offset, segment.end_offset
    return replace(damage, start=start, end=end, reason=f"{damage.reason}{named}")


def _spans(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """What these batches cover, neighbours together."""
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        follows = bool(found) and found[-1][1] == chunk.base_offset
        start = found.pop()[0] if follows else chunk.base_offset
        found.append((start, chunk.end_offset))
    return found


def missing_of_run(
    contents: pa.Buffer, segment: Segment, whole: Sequence[Chunk], topic: Topic
) -> list[tuple[int, int]]:
    """The ranges of a run's offsets that none of its valid batches has."""
    found = run_offsets([stored_batch(contents, chunk, topic) for chunk in whole])
    lost = np.ones(segment.end_offset - segment.base_offset, np.bool_)
    lost[found - segment.base_offset] = False
    return _ranges(lost, segment.base_offset)


@dataclass(frozen=True, slots=True)
class LostRows:
    """The rows of damaged batches of a run."""

    #: Ranges [first, behind) of rows; neighbours together.
    spans: Sequence[tuple[int, int]]
    #: The offset of each row; None if a batch doesn't tell them.
    offsets: Numbers | None

    def missing(self, segment: Segment) -> list[tuple[int, int]] | None:
        """The ranges of their offsets; None if unknown."""
        if self.offsets is None:
            return None
        lost = np.zeros(segment.end_offset - segment.base_offset, np.bool_)
        lost[self.offsets - segment.base_offset] = True
        return _ranges(lost, segment.base_offset)


def lost_rows(reader: ChunkReader, segment: Segment, lost: Sequence[Chunk]) -> LostRows:
    """The rows of damaged batches of a run."""
    base, offsets = segment.base_offset, None
    with suppress(CorruptionError):
        offsets = run_offsets([reader.stored(chunk, _OFFSETS) for chunk in lost])
    return LostRows([(first - base, behind - base) for first, behind in _spans(lost)], offsets)


def _ranges(lost: Mask, base: int) -> list[tuple[int, int]]:
    borders = np.flatnonzero(np.diff(np.concatenate([[False], lost, [False]]).astype(np.int8)))
    return [(base + int(start), base + int(end)) for start, end in borders.reshape(-1, 2)]


def slices_of_run(
    reader: ChunkReader, segment: Segment, whole: Sequence[Chunk], topic: Topic, partition: int
) -> Iterator[Slice]:
    """The records of these batches of a run."""
    run = RunByOffset([reader.stored(chunk, topic.layout()) for chunk in whole])
    start, end = segment.base_offset, segment.end_offset
    yield Slice(topic.name, partition, start, run.between(start, end), end)
