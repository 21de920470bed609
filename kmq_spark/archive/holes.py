"""What was lost before it was archived, in the archive's own record, for later reads.

A job with `fail_on_data_loss=False` notes which records are lost before it writes the batch that
passes over them. Offsets without records are no loss by themselves: compaction leaves such, too.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

from kmq_spark.datasource.offsets import StreamOffset, parse_stream_offset
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_spark.datasource.planning.plan import held
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.streams.plan import ranges_between
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import ArchiveRecord, ArchiveRecords
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.state.store_state import StoreState


class _Found(Losses):
    """Collects what is lost, and says nothing: the job's own read has."""

    def __init__(self) -> None:
        super().__init__(fail=False)
        self.ranges: list[tuple[uuid.UUID, OffsetRange]] = []

    def report(
        self, message: str, topic_id: uuid.UUID, lost: Iterable[OffsetRange], **facts: object
    ) -> None:
        self.ranges += [(topic_id, each) for each in lost]


def lost_records(place: ArchivePlace) -> tuple[int, int]:
    """Return how many records were lost so far by an archive's record, and by its checkpoint.

    Only the checkpoint counts those of deleted topics. Only the record has what is lost between
    the plan of a batch and its writing.
    """
    records = ArchiveRecords(place)
    record = records.newest()
    if record is None:
        return 0, 0
    by_partition = [spans for lost in record.holes.values() for spans in lost.values()]
    noted = sum(high - low for spans in by_partition for low, high in spans)
    names = records.files.list(f"{record.checkpoint}/commits")
    finished = [int(name) for name in names if name.isdigit()]
    return noted, _offset(records, record, max(finished)).lost if finished else 0


def note_holes(log: CommitLog, place: ArchivePlace, record: ArchiveRecord, number: int) -> None:
    """Note in the archive's record what the log has lost of a batch that is about to be written."""
    records = ArchiveRecords(place)
    begins, ends = _offsets_of(records, record, number)

    def lost(state: StoreState) -> list[tuple[uuid.UUID, OffsetRange]]:
        found = _Found()
        held(ranges_between(state, begins, ends, found), found, None)
        return found.ranges

    known = grown = records.newest() or record
    for topic_id, each in looking_again(log, lost):
        grown = grown.with_hole(topic_id, each.partition, (each.start, each.end))
    if grown != known:
        records.add(grown)


def _offsets_of(
    records: ArchiveRecords, record: ArchiveRecord, number: int
) -> tuple[StreamOffset, StreamOffset]:
    """Between which positions a batch lies, by what Spark keeps in the checkpoint."""
    ends = _offset(records, record, number)
    if number:
        return _offset(records, record, number - 1), ends
    ids = ends.ids or {}
    first = {
        name: {p: record.start(ids[name], p) for p in offsets}
        for name, offsets in ends.positions.items()
    }
    return StreamOffset(positions=first, ids=ids), ends


def _offset(records: ArchiveRecords, record: ArchiveRecord, number: int) -> StreamOffset:
    # A version, Spark's own facts, and a line for each source, of which there is one.
    lines = records.files.read(f"{record.checkpoint}/offsets/{number}").decode().splitlines()
    return parse_stream_offset(json.loads(lines[-1]))
