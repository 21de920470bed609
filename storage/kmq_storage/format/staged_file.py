"""Staged files: Arrow IPC files, in which checksums of single columns may follow a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.format.checksum import Bytes
from kmq_storage.format.message import FILE_MAGIC_BYTES, placed_footer
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.packing import PROVEN_BYTES_MIN, packed, parts_length
from kmq_storage.format.pieces import Pieces
from kmq_storage.format.records import is_typed


def staged_schema(schema: pa.Schema, topic: str, partition: int) -> pa.Schema:
    """The schema of a staged file: that of its batches, with metadata about its contents."""
    return schema.with_metadata(
        {
            "kmq.format": str(limits.FORMAT_VERSION),
            "kmq.topic": topic,
            "kmq.partition": str(partition),
        }
    )


def has_parts(schema: pa.Schema, length: int) -> bool:
    """Whether an unsealed message of this length is followed by the checksums of its parts."""
    return length >= PROVEN_BYTES_MIN and is_typed(schema)


def written_length(batch: pa.RecordBatch) -> int:
    """An upper bound of the bytes of a batch's message with the checksums that follow it."""
    length: int = pa.ipc.get_record_batch_size(batch)
    schema = batch.schema
    return length + (parts_length(len(schema)) if has_parts(schema, length) else 0)


class StagedEncoder:
    """Encodes one staged file, batch by batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        #: Where the messages are; each place includes the checksums that follow the message.
        self.places: list[MessagePlace] = []
        self._blocks: list[tuple[int, int, int]] = []
        self._end = FILE_MAGIC_BYTES + schema.serialize().size

    def buffers(self, batches: Iterable[tuple[pa.RecordBatch, bool]]) -> Iterator[Bytes]:
        """The bytes of the file, piece by piece; checksums of parts follow the marked batches."""
        pieces = Pieces()
        writer = pa.ipc.new_file(pa.PythonFile(pieces, mode="w"), self._schema)
        for batch, proven in batches:
            writer.write_batch(batch)
            if not self.places:
                yield from pieces.take(self._end)
            yield from self._message(pieces.take(), proven=proven)
        writer.close()
        yield placed_footer(b"".join(map(bytes, pieces.take())), self._blocks)

    def _message(self, pieces: Sequence[Bytes], *, proven: bool) -> Sequence[Bytes]:
        message = packed(pieces, self._schema)
        buffers, found = message.with_parts() if proven else (message.buffers, message.checksum)
        length = sum(map(len, buffers))
        self._blocks.append((self._end, message.head_length, message.body_length))
        self.places.append(MessagePlace(self._end, length, found))
        self._end += length
        return buffers
