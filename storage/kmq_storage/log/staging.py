"""Placing record batches: inside a commit's frame, or in a staged file that the commit names.

A staged file is an Arrow IPC file of one partition, which any Arrow tool can open. No reader knows
it before a commit names it, so a failed task leaves nothing visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.records import EncodedBatch, columns_of, encode_batch, timestamp_bounds
from kmq_storage.format.staged_file import StagedEncoder, has_parts, staged_schema, written_length
from kmq_storage.format.typed import versioned
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.uploads import Later
from kmq_storage.objects.files import Files

#: Room for the footer, which repeats the schema and has 24 bytes per batch.
_FOOTER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SizedBatch:
    """A stored record batch, and the bytes of its keys, values, headers and properties."""

    batch: pa.RecordBatch
    size: int


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Record batches of one partition, in order, all with the same columns."""

    topic: str
    topic_id: bytes
    partition: int
    batches: tuple[SizedBatch, ...]
    #: The version of a typed topic's schema; 0 in an untyped topic.
    schema_version: int = 0

    @property
    def columns(self) -> int:
        """Their columns as a commit's flags, with the version of the schema."""
        return versioned(columns_of(self.batches[0].batch.schema), self.schema_version)


@dataclass(frozen=True, slots=True)
class Placed:
    """Entries for placed batches, and the messages of those inside the frame."""

    entries: tuple[RecordsEntry, ...]
    bodies: tuple[pa.Buffer, ...] = ()


def inline_entry(topic_id: bytes, partition: int, batch: EncodedBatch) -> RecordsEntry:
    """The entry for a batch inside the frame; binding sets its offset and position."""
    return RecordsEntry(
        topic_id,
        partition,
        batch.rows,
        -1,
        0,
        batch.message.size,
        batch.checksum,
        batch.columns,
        batch.min_timestamp,
        batch.max_timestamp,
        batch.size,
    )


def file_ids(log: CommitLog) -> Callable[[], bytes]:
    """A function that makes ids for files to stage for commits of this log."""
    return lambda: new_file_id(log.environment.new_uuid(), log.recent_state().lsn)


class Stager:
    """Decides where record batches are placed, and writes the staged files."""

    def __init__(
        self,
        files: Files,
        new_id: Callable[[], bytes],
        *,
        sync: bool,
        small_room: int = 0,
        later: Later | None = None,
    ) -> None:
        self._files = files
        self._new_id = new_id
        self._sync = sync
        #: See `CommitLog.small_room`.
        self._small_room = small_room
        #: Writes files later than they are placed; if None, `stage` writes each file itself.
        self._later = later

    def is_prompt(self, parts: Sequence[PartitionRecords], *, room: int) -> bool:
        """Whether placing these records would return at once: inline, or uploaded meanwhile."""
        if self._later is not None and self._later.is_prompt:
            return True
        sizes = [sum(_message_lengths(records)) for records in parts]
        return sum(sizes) <= room and max(sizes, default=0) <= limits.INLINE_BATCH_BYTES_MAX

    def place(self, records: PartitionRecords, *, room: int) -> Placed:
        """Place records inside the frame if they are small and fit into `room`; else stage them."""
        lengths = _message_lengths(records)
        if not self._is_inline(sum(lengths), room):
            return Placed(tuple(self._stage(records, lengths)))
        columns = records.columns
        encoded = [
            encode_batch(
                sized.batch,
                size=sized.size,
                columns=columns,
                proven=has_parts(sized.batch.schema, length),
            )
            for sized, length in zip(records.batches, lengths, strict=True)
        ]
        entries = [inline_entry(records.topic_id, records.partition, batch) for batch in encoded]
        return Placed(tuple(entries), tuple(batch.message for batch in encoded))

    def _is_inline(self, length: int, room: int) -> bool:
        if length <= limits.SMALL_BATCH_BYTES_MAX:
            room += self._small_room
        return length <= min(limits.INLINE_BATCH_BYTES_MAX, room)

    def stage(self, records: PartitionRecords) -> list[RecordsEntry]:
        """Stage records in one file; returns the entries with which a commit refers to it.

        With `later`, the file may not be there yet: call `wait_for` before the commit.
        """
        return self._stage(records, _message_lengths(records))

    def _stage(self, records: PartitionRecords, lengths: Sequence[int]) -> list[RecordsEntry]:
        file_id = self._new_id()
        contents, places = _arrow_file(records, lengths)
        if self._later is None:
            self._write(file_id, contents)
        else:
            self._later.begin(file_id, contents)
        return [
            _staged_entry(records, sized, file_id, place)
            for sized, place in zip(records.batches, places, strict=True)
        ]

    def _write(self, file_id: bytes, contents: pa.Buffer) -> None:
        with translated(self._files.url):
            self._files.stage(paths.staged_file(file_id), [contents], sync=self._sync)

    def wait_for(self, entries: Iterable[Entry]) -> None:
        """Wait until the files that these entries name are there; raises the error of one."""
        if self._later is not None:
            self._later.wait_for({e.staged for e in entries if isinstance(e, RecordsEntry)})

    def close(self) -> None:
        """Take nothing more to write later; what was begun still ends."""
        if self._later is not None:
            self._later.close()


def _message_lengths(records: PartitionRecords) -> list[int]:
    return [written_length(sized.batch) for sized in records.batches]


def _staged_entry(
    records: PartitionRecords,
    sized: SizedBatch,
    file_id: bytes,
    place: MessagePlace,
) -> RecordsEntry:
    low, high = timestamp_bounds(sized.batch)
    return RecordsEntry(
        records.topic_id,
        records.partition,
        sized.batch.num_rows,
        -1,
        place.position,
        place.length,
        place.checksum,
        records.columns,
        low,
        high,
        sized.size,
        file_id,
    )


def _arrow_file(
    records: PartitionRecords, lengths: Sequence[int]
) -> tuple[pa.Buffer, list[MessagePlace]]:
    """An Arrow IPC file of the batches, and the place of each message."""
    schema = staged_schema(records.batches[0].batch.schema, records.topic, records.partition)
    space = 2 * schema.serialize().size + sum(lengths) + 32 * len(lengths) + _FOOTER_BYTES
    target = pa.allocate_buffer(space)
    sink = pa.FixedSizeBufferWriter(target)
    encoder = StagedEncoder(schema)
    batches = [sized.batch for sized in records.batches]
    proven = [has_parts(schema, length) for length in lengths]
    for piece in encoder.buffers(zip(batches, proven, strict=True)):
        sink.write(piece)
    return target.slice(0, sink.tell()), encoder.places
