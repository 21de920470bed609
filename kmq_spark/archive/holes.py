"""What was lost before it was archived, in the archive's own record, for later reads.

A job with `fail_on_data_loss=False` notes which records are lost before it writes the batch that
passes over them. Offsets without records are no loss by themselves: compaction leaves such, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from kmq_spark.archive.checkpoint import Checkpoint
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
    return noted, Checkpoint(records, record).lost()


def note_holes(log: CommitLog, place: ArchivePlace, record: ArchiveRecord, number: int) -> None:
    """Note in the archive's record what the log has lost of a batch that is about to be written."""
    records = ArchiveRecords(place)
    begins, ends = Checkpoint(records, record).bounds(number)

    def lost(state: StoreState) -> list[tuple[uuid.UUID, OffsetRange]]:
        found = _Found()
        held(ranges_between(state, begins, ends, found), found, None)
        return found.ranges

    known = grown = records.newest() or record
    for topic_id, each in looking_again(log, lost):
        grown = grown.with_hole(topic_id, each.partition, (each.start, each.end))
    if grown != known:
        records.add(grown)
