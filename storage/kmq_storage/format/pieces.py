"""The buffers that pyarrow writes, one by one, so that serialised messages are not copied."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.format.checksum import Bytes


class Pieces:
    """A file that pyarrow writes into; it keeps the written buffers and doesn't copy them."""

    closed = False

    def __init__(self) -> None:
        self._buffers: list[Bytes] = []

    def write(self, data: Bytes) -> int:
        """Keep the buffer until `take` returns it."""
        self._buffers.append(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: pyarrow calls this, and there is nothing to flush."""

    def take(self, length: int | None = None) -> list[Bytes]:
        """Remove and return the kept buffers: all, or those of the first `length` bytes."""
        count = 0
        while count < len(self._buffers) and (length is None or length > 0):
            length = length and length - len(self._buffers[count])
            count += 1
        taken, self._buffers = self._buffers[:count], self._buffers[count:]
        return taken


def message_pieces(batch: pa.RecordBatch) -> list[Bytes]:
    """The buffers of the message of a record batch, without the message of its schema."""
    pieces = Pieces()
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
        pieces.take(batch.schema.serialize().size)
        return pieces.take()
