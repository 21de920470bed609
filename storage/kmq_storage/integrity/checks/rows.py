"""Checks of the manifest's rows: they cover the offsets of each partition, and name valid files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby

from kmq_storage import paths
from kmq_storage.cutting import cut, outside
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.manifest import STAGED, Row
from kmq_storage.integrity.files.batches import check_chunk
from kmq_storage.integrity.files.cut_out import cut_out
from kmq_storage.integrity.files.segments import check_segment
from kmq_storage.integrity.files.staged import check_staged
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.integrity.second_looks import found_twice
from kmq_storage.log.index.offset_index import OffsetIndex
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition, Topic
from kmq_storage.model import Chunk, Segment
from kmq_storage.objects.files import Files

MISSING = "file is missing"
#: How many neighbouring batches of one staged file are checked together.
_TOGETHER = 4096


def check_partitions(files: Files, state: StoreState, *, deep: bool) -> Iterator[Finding]:
    """Damage in the records of all partitions, by the rows of a state's manifest."""
    for topic in list(state.topics.values()):
        for number in range(topic.partitions):
            yield from _check_known(state, topic, number)
            yield from PartitionCheck(files, topic, number, deep=deep).findings()


def _check_known(state: StoreState, topic: Topic, number: int) -> Iterator[Finding]:
    """Damage that the replay of the log met."""
    part, index = topic.partition(number), topic.index(number)
    for hole in index.holes:
        reason = f"their commit is damaged ({hole.damage.reason})"
        yield Damage(hole.damage.file, topic.name, number, hole.start, hole.end, reason)
    doubt = state.broken or part.doubt
    if doubt is not None:
        reason = f"what follows can't be read ({doubt.reason})"
        yield Damage(doubt.file, topic.name, number, part.end, None, reason)
    gaps = [gap for gap in index.gaps if gap.end > part.start]
    for reason, alike in groupby(gaps, key=lambda gap: gap.reason):
        for line in cut_out(topic, number, [(gap.start, gap.end) for gap in alike]):
            yield Note(f"{topic.name}-{number}", f"{line} ({reason})")


class PartitionCheck:
    """Checks the rows of one partition."""

    def __init__(self, files: Files, topic: Topic, number: int, *, deep: bool) -> None:
        self._files = files
        self._topic = topic
        self._number = number
        self._deep = deep
        self._key = (topic.id, number)
        self._part: Partition = topic.partition(number)
        self._index: OffsetIndex = topic.index(number)
        #: Where the next row must begin.
        self._position = self._part.start

    def findings(self) -> Iterator[Finding]:
        """The damage in the partition."""
        end = self._part.end
        try:
            for rows in by_file(self._index.rows(self._part.start, end)):
                yield from self._covered_until(rows)
                yield from check_file(self._files, self._topic, self._number, rows, deep=self._deep)
                self._position = max(self._position, rows[-1].end_offset)
        except FormatVersionError:
            raise
        except CorruptionError as error:  # a page of the manifest
            file = str(error.context.get("file", paths.PAGE_FOLDER))
            reason = MISSING if error.context.get("missing") else error.message
            yield self._damage(file, self._position, end, reason)
            return
        yield from self._uncovered(self._position, end)

    def _covered_until(self, rows: list[Row]) -> Iterator[Finding]:
        base = rows[0].base_offset
        if base > self._position:
            yield from self._uncovered(self._position, base)
        elif base < self._position and self._position > self._part.start:
            reason = "these offsets are in two places"
            yield self._damage(rows[0].path(self._key), base, self._position, reason)

    def _uncovered(self, start: int, end: int) -> Iterator[Finding]:
        """Offsets without a row that no gap or hole explains."""
        reason = "the manifest names no file for these offsets"
        holes = [(hole.start, hole.end) for hole in self._index.holes]
        for part in self._index.outside_gaps(start, end):
            for span in outside(holes, *part):
                yield self._damage(paths.CHECKPOINT_FOLDER, *span, reason)

    def _damage(self, file: str, start: int, end: int, reason: str) -> Damage:
        return Damage(file, self._topic.name, self._number, start, end, reason)


def check_file(
    files: Files, topic: Topic, number: int, rows: list[Row], *, deep: bool
) -> Iterable[Finding]:
    """Damage in the file of some neighbouring rows, as far as they name it."""
    file = rows[0].path((topic.id, number))
    return found_twice(files, file, lambda: _check_place(files, topic, number, rows, deep=deep))


def _check_place(
    files: Files, topic: Topic, number: int, rows: list[Row], *, deep: bool
) -> Iterator[Finding]:
    key = (topic.id, number)
    file, places = rows[0].path(key), [row.place(key) for row in rows]
    try:
        contents = files.map(file)
    except FileNotFoundError:
        start, end = rows[0].base_offset, rows[-1].end_offset
        yield Damage(file, topic.name, number, start, end, MISSING)
        return
    chunks = [place for place in places if isinstance(place, Chunk)]
    if isinstance(places[0], Segment):
        runs = partial(_runs_up_to, files, topic, rows[0].end_offset)
        yield from check_segment(contents, places[0], topic, number, deep=deep, runs=runs)
    elif rows[0].kind == STAGED:
        yield from check_staged(contents, chunks, topic, number, deep=deep)
    elif deep:
        for chunk in chunks:
            yield from check_chunk(contents, chunk, topic, number)


def _runs_up_to(files: Files, topic: Topic, offset: int) -> list[RunIndex]:
    """The runs of a keyed topic up to an offset; none if its state doesn't know them.

    CorruptionError when one can't be read.
    """
    reader, part = ChunkReader(files), topic.partition(0)
    rows = () if part.index is None else part.index.rows(part.start, offset)
    return [RunIndex(reader, row.place((topic.id, 0)), topic.name) for row in rows if row.in_run]


def by_file(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows grouped by file, where neighbours have the same one."""
    for _, same in groupby(rows, key=lambda row: (row.kind, row.file)):
        yield from cut(same, lambda _: 1, _TOGETHER)


def still_missing(state: StoreState, damage: Damage) -> bool:
    """Whether the newest state still refers to a missing file, since records may have moved."""
    topic = None if damage.topic is None else state.find_topic(damage.topic)
    number, start, end = damage.partition, damage.start, damage.end
    if topic is None or number is None or start is None or end is None:
        return False
    try:
        rows = topic.index(number).rows(max(start, topic.partition(number).start), end)
        return damage.file in {row.path((topic.id, number)) for row in rows}
    except CorruptionError:
        return True
