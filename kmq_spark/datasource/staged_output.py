"""Record batches of one task on their way to disk: gathered per partition, then staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kmq_spark.datasource.store_url import storage_options
from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.joining import columns_of_all, joined
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager
from kmq_storage.log.uploads import Uploads
from kmq_storage.objects.open import open_disk

#: A task holds at most about this much in memory before it writes files.
_HELD_BYTES_MAX = 64 << 20

#: What a task has left below this travels to the driver instead of becoming files.
_MESSAGE_BYTES_MAX = 128 << 10

#: Bytes of a staged file, and rows. Each holds one record batch, so that it takes 96 bytes of the
#: commit; sealing cuts it into smaller ones.
_FILE_BYTES = 16 << 20
_FILE_ROWS = 1 << 19

_Place = tuple[bytes, int]


class StagedOutput:
    """Takes records of any partitions and brings them to disk in few files, in their order."""

    def __init__(self, url: str, lsn: int) -> None:
        disk = open_disk(url, storage_options=storage_options(url))
        self._stager = Stager(
            disk, lambda: new_file_id(SYSTEM.new_uuid(), lsn), sync=True, uploads=Uploads()
        )
        self._waiting: dict[_Place, list[PartitionRecords]] = {}
        self._held = 0
        self._staged: list[RecordsEntry] = []

    def add(self, records: Iterable[PartitionRecords]) -> None:
        """Take records, and write files when much is waiting."""
        for each in records:
            self._waiting.setdefault((each.topic_id, each.partition), []).append(each)
            self._held += sum(sized.size for sized in each.batches)
        if self._held >= _HELD_BYTES_MAX:
            self._stage_all()

    def finish(self) -> tuple[tuple[RecordsEntry, ...], tuple[PartitionRecords, ...]]:
        """What was staged, and what is small enough to travel with the commit message."""
        if self._held > _MESSAGE_BYTES_MAX:
            self._stage_all()
        return tuple(self._staged), tuple(merged(run) for run in self._waiting.values())

    def _stage_all(self) -> None:
        for run in self._waiting.values():
            whole = merged(run)
            for sized in whole.batches:
                self._staged += self._stager.stage(replace(whole, batches=(sized,)))
        self._stager.wait_for(self._staged)
        self._waiting.clear()
        self._held = 0


def merged(run: Sequence[PartitionRecords]) -> PartitionRecords:
    """Records of one partition as one: few batches of bounded size, all with the same columns."""
    columns = columns_of_all(sized.batch for records in run for sized in records.batches)
    done: list[SizedBatch] = []
    waiting: list[SizedBatch] = []
    rows = size = 0
    for sized in (sized for records in run for sized in records.batches):
        rows, size = rows + sized.batch.num_rows, size + sized.size
        if waiting and (rows > _FILE_ROWS or size > _FILE_BYTES):
            done.append(_joined(waiting, columns))
            waiting, rows, size = [], sized.batch.num_rows, sized.size
        waiting.append(sized)
    done.append(_joined(waiting, columns))
    return replace(run[0], batches=tuple(done))


def _joined(run: Sequence[SizedBatch], columns: int) -> SizedBatch:
    batch = joined([sized.batch for sized in run], columns)
    return SizedBatch(batch, sum(sized.size for sized in run))
