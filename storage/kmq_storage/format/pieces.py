"""What pyarrow writes, as the pieces in which it does: nothing is copied on the way."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.format.checksum import Bytes


class Pieces:
    """A file for pyarrow to write into, which hands on what it got without copying it."""

    closed = False

    def __init__(self) -> None:
        self._buffers: list[Bytes] = []

    def write(self, data: Bytes) -> int:
        """Keep it until it is taken."""
        self._buffers.append(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self, length: int | None = None) -> list[Bytes]:
        """The buffers that were written and not taken yet, or those of the first bytes."""
        count = 0
        while count < len(self._buffers) and (length is None or length > 0):
            length = length and length - len(self._buffers[count])
            count += 1
        taken, self._buffers = self._buffers[:count], self._buffers[count:]
        return taken


def message_pieces(batch: pa.RecordBatch) -> list[Bytes]:
    """The pieces of a record batch's message."""
    pieces = Pieces()
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
        pieces.take(batch.schema.serialize().size)
        return pieces.take()
