"""Record batches of one task on their way to disk: gathered per partition, then staged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kmq_spark.datasource.sink.merging import FILE_BYTES, merged
from kmq_spark.datasource.store_url import storage_options
from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.manifest import Key
from kmq_storage.log.staging import PartitionRecords, Stager
from kmq_storage.log.uploads import Uploads
from kmq_storage.objects.open import open_files

#: A task writes all that it holds in memory when that is so much.
_WAITING_BYTES_MAX = 64 << 20

#: And waits while more than this is being written.
_IN_FLIGHT_BYTES_MAX = 32 << 20

#: At its end, a task sends less than this to the driver instead of writing files.
_MESSAGE_BYTES_MAX = 128 << 10

#: Each record takes this much beside what its size counts: its timestamp.
_ROW_BYTES = 8


@dataclass(slots=True)
class _Run:
    """Records of one partition that wait to be written."""

    records: list[PartitionRecords] = field(default_factory=list)
    #: The bytes of keys, values, headers and properties, and what all takes in memory.
    size: int = 0
    held: int = 0


class StagedOutput:
    """Writes records of any partitions to few files, in the order of the records."""

    def __init__(self, url: str, lsn: int) -> None:
        files = open_files(url, storage_options=storage_options(url))
        self._stager = Stager(
            files, lambda: new_file_id(SYSTEM.new_uuid(), lsn), sync=True, later=Uploads(files)
        )
        self._waiting: dict[Key, _Run] = {}
        self._waiting_bytes = 0
        #: Files that may still be written to, oldest first, and their bytes.
        self._in_flight: deque[RecordsEntry] = deque()
        self._in_flight_bytes = 0
        self._staged: list[RecordsEntry] = []

    def add(self, records: Iterable[PartitionRecords]) -> None:
        """Take records; write a partition's when they fill a file, and all when much is waiting."""
        for each in records:
            place = each.topic_id, each.partition
            run = self._waiting.setdefault(place, _Run())
            run.records.append(each)
            held = sum(_held(sized.size, sized.batch.num_rows) for sized in each.batches)
            run.size += sum(sized.size for sized in each.batches)
            run.held += held
            self._waiting_bytes += held
            if run.size >= FILE_BYTES:
                self._stage(place)
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._stage_all()

    def finish(self) -> tuple[tuple[RecordsEntry, ...], tuple[PartitionRecords, ...]]:
        """Return what was staged, and what is left for the commit message."""
        if self._waiting_bytes > _MESSAGE_BYTES_MAX:
            self._stage_all()
        self._stager.wait_for(self._staged)
        small = tuple(merged(run.records) for run in self._waiting.values())
        return tuple(self._staged), small

    def _stage_all(self) -> None:
        for place in tuple(self._waiting):
            self._stage(place)

    def _stage(self, place: Key) -> None:
        run = self._waiting.pop(place)
        self._waiting_bytes -= run.held
        whole = merged(run.records)
        for sized in whole.batches:
            entries = self._stager.stage(replace(whole, batches=(sized,)))
            self._staged += entries
            self._in_flight += entries
            self._in_flight_bytes += _held(sized.size, sized.batch.num_rows)
            while self._in_flight_bytes > _IN_FLIGHT_BYTES_MAX:
                oldest = self._in_flight.popleft()
                self._stager.wait_for([oldest])
                self._in_flight_bytes -= _held(oldest.size, oldest.rows)


def _held(size: int, rows: int) -> int:
    return size + _ROW_BYTES * rows
