"""What Spark notes of the archiving job: the bounds of each batch, and which are finished."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from kmq_spark.datasource.offsets import StreamOffset, parse_stream_offset
from kmq_spark.lake.record import ArchiveRecord, ArchiveRecords

#: What Spark writes of a finished batch without watermark.
_FINISHED = b'v1\n{"nextBatchWatermarkMs":0}'


class Checkpoint:
    """The folder that Spark keeps for the job."""

    def __init__(self, records: ArchiveRecords, record: ArchiveRecord) -> None:
        self._records = records
        self._files = records.files
        self._record = record

    def bounds(self, number: int) -> tuple[StreamOffset, StreamOffset]:
        """Between which positions a batch lies."""
        ends = self._offset(number)
        if number:
            return self._offset(number - 1), ends
        ids = ends.ids or {}
        first = {
            name: {p: self._record.start(ids[name], p) for p in offsets}
            for name, offsets in ends.positions.items()
        }
        return StreamOffset(positions=first, ids=ids), ends

    def lost(self) -> int:
        """How many records the finished batches have counted as lost."""
        last = self._records.last_batch(self._record)
        return 0 if last < 0 else self._offset(last).lost

    def finish_passed(self, passed: Mapping[bytes, Mapping[int, int]]) -> None:
        """Note again that the last batch is finished, if the job's group has passed it.

        The group follows Spark's note, which a power cut may take alone. Spark would write the
        batch again then, out of a log that may have been trimmed since. `passed`: the offsets of
        the group, by topic id.
        """
        number = self._records.last_batch(self._record, "offsets")
        if number < 0 or self._is_finished(number):
            return
        begins, ends = self.bounds(number)
        if begins.positions != ends.positions and _is_passed(ends, passed):
            folder = self._path("commits")
            self._files.remove(f"{folder}/{number}", f"{folder}/.{number}.crc")
            self._records.publish(f"{folder}/{number}", _FINISHED)

    def _is_finished(self, number: int) -> bool:
        # A power cut may leave an empty file.
        return number == self._records.last_batch(self._record) and bool(
            self._files.read(f"{self._path('commits')}/{number}")
        )

    def _offset(self, number: int) -> StreamOffset:
        # A version, Spark's own facts, and a line for each source, of which there is one.
        lines = self._files.read(f"{self._path('offsets')}/{number}").decode().splitlines()
        return parse_stream_offset(json.loads(lines[-1]))

    def _path(self, kind: str) -> str:
        return f"{self._record.checkpoint}/{kind}"


def _is_passed(ends: StreamOffset, passed: Mapping[bytes, Mapping[int, int]]) -> bool:
    ids: Mapping[str, uuid.UUID] = ends.ids or {}
    return all(
        name in ids and passed.get(ids[name].bytes, {}).get(partition, 0) >= offset
        for name, offsets in ends.positions.items()
        for partition, offset in offsets.items()
    )
