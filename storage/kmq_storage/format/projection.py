"""Read some columns of a sealed record batch without reading the others."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kmq_storage.format.message import is_compressed
from kmq_storage.format.records import read_batch, undecodable


def read_columns(
    message: pa.Buffer, schema: pa.Schema, columns: Sequence[int], where: str
) -> pa.RecordBatch:
    """The columns of a message at these positions of its schema, in this order.

    Uncompressed columns are not copied, and bytes of other columns are not read.
    """
    if not is_compressed(message):
        return read_batch(message, schema, where).select(list(columns))
    options = pa.ipc.IpcReadOptions(included_fields=list(columns))
    pieces = pa.PythonFile(_Pieces(schema.serialize(), message), mode="r")
    try:
        with pa.ipc.open_stream(pieces, options=options) as stream:
            return stream.read_next_batch()
    except (pa.ArrowException, OSError) as error:
        raise undecodable(where, error) from error


class _Pieces:
    """A file made of buffers; pyarrow never reads across the boundary of two."""

    closed = False

    def __init__(self, *buffers: pa.Buffer) -> None:
        self._buffers = list(buffers)

    def read(self, length: int) -> pa.Buffer:
        return self.read_buffer(length)

    def read_buffer(self, length: int) -> pa.Buffer:
        if not self._buffers:
            return pa.py_buffer(b"")
        first = self._buffers[0]
        if length < first.size:
            self._buffers[0] = first.slice(length)
        else:
            del self._buffers[0]
        return first.slice(0, length)

    def close(self) -> None:
        self.closed = True
