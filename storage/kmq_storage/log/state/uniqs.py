"""Deduplication: which record was stored first under a `uniq` text within the topic's window.

The digests of these texts are entries of the commit log, so the answer is exact and the same for
every writer.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator

import pyarrow as pa

from kmq_storage.format.plain_columns import fixed_batch
from kmq_storage.format.uniq_entry import UniqEntry

#: Partition and offset of the first record with a text, and its commit time (UTC us).
FirstRecord = tuple[int, int, int]

_SCHEMA = pa.schema(
    [
        ("topic_id", pa.binary(16)),
        ("digest", pa.binary(16)),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time", pa.int64()),
    ]
)


class Uniqs:
    """The digests of all topics; those of each topic are in commit order."""

    def __init__(self) -> None:
        self._by_topic: dict[bytes, dict[bytes, FirstRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def find(self, topic_id: bytes, digest: bytes, since: int) -> tuple[int, int] | None:
        """Partition and offset of the record committed under a digest after `since` (UTC us)."""
        found = self._by_topic.get(topic_id, {}).get(digest)
        return found[:2] if found is not None and found[2] > since else None

    def apply(self, entry: UniqEntry, time: int, window: float) -> None:
        """Add the records of a commit at `time`; forget those older than the window (seconds)."""
        known = self._by_topic.setdefault(entry.topic_id, {})
        since = time - round(window * 1e6)
        while known:
            oldest = next(iter(known))
            if known[oldest][2] > since:
                break
            del known[oldest]
        for partition, offset, digest in entry.uniqs:
            known.pop(digest, None)
            known[digest] = partition, offset, time

    def forget(self, topic_id: bytes) -> None:
        """Drop the digests of a deleted topic."""
        self._by_topic.pop(topic_id, None)

    def rows(self) -> Iterator[tuple[bytes, bytes, int, int, int]]:
        """All digests, in the columns of the snapshot."""
        for topic_id, known in self._by_topic.items():
            for digest, place in known.items():
                yield topic_id, digest, *place

    def snapshot(self) -> bytes:
        """All digests as an Arrow stream in base64, for a checkpoint."""
        columns = list(zip(*self.rows(), strict=True)) or [()] * len(_SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_batch(fixed_batch(columns, _SCHEMA))
        return b64encode(sink.getvalue())

    def restore(self, stream: bytes) -> None:
        """Load the digests that `snapshot` stored in a checkpoint."""
        if stream:
            batch = pa.ipc.open_stream(b64decode(stream)).read_next_batch()
            for topic_id, digest, *place in zip(*(c.to_pylist() for c in batch), strict=True):
                self._by_topic.setdefault(topic_id, {})[digest] = (place[0], place[1], place[2])
