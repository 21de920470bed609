"""From a chunk to its records: map the file, prove the batch, cut it to the offsets asked for.

Needs only a disk and chunks, no replay: Spark's executors read with this.
"""

from __future__ import annotations

from collections import OrderedDict

import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.records import decode_batch
from kmq_storage.log.disk_errors import unavailable
from kmq_storage.model import Chunk
from kmq_storage.objects.disk import Disk

_MAPPED_FILES = 64


class ChunkReader:
    """Reads chunks; keeps the last files mapped. One thread at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._mapped: OrderedDict[str, pa.Buffer] = OrderedDict()

    def read(
        self, chunk: Chunk, start: int, end: int, *, topic: str = "", partition: int = -1
    ) -> pa.RecordBatch:
        """The records of a chunk with offsets in [start, end), in the stored columns.

        CorruptionError names topic, partition and the chunk's offsets when its bytes changed.
        """
        where = (
            f"{chunk.location.file} at byte {chunk.location.position}: {topic}-{partition}, "
            f"offsets {chunk.base_offset} to {chunk.end_offset - 1}"
        )
        facts = {
            "file": chunk.location.file,
            "topic": topic,
            "partition": partition,
            "start": chunk.base_offset,
            "end": chunk.end_offset,
        }
        try:
            batch = self._decode(chunk, where)
        except CorruptionError as error:
            message = error.message if where in error.message else f"{error.message}: {where}"
            raise CorruptionError(message, **facts) from error
        except FileNotFoundError as error:
            raise CorruptionError(f"file is missing: {where}", **facts) from error
        except OSError as error:
            raise unavailable(error, self._disk.url) from error
        first = max(start - chunk.base_offset, 0)
        return batch.slice(first, min(end, chunk.end_offset) - chunk.base_offset - first)

    def _decode(self, chunk: Chunk, where: str) -> pa.RecordBatch:
        known = chunk.location.file in self._mapped
        try:
            return decode_batch(self._message(chunk), chunk.columns, chunk.checksum, where)
        except CorruptionError:
            if not known:
                raise
            # The file may have been replaced since, after a failed sync.
            del self._mapped[chunk.location.file]
            return decode_batch(self._message(chunk), chunk.columns, chunk.checksum, where)

    def _message(self, chunk: Chunk) -> pa.Buffer:
        location = chunk.location
        contents = self._mapped.get(location.file)
        if contents is None:
            contents = self._mapped[location.file] = self._disk.map(location.file)
            if len(self._mapped) > _MAPPED_FILES:
                self._mapped.popitem(last=False)
        if location.position + location.length > contents.size:
            raise CorruptionError("file is shorter than its commit says")
        return contents.slice(location.position, location.length)
