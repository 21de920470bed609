"""What was stored under a sender's text within the window of its topic: exact, and in the log."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator

import pyarrow as pa

from kmq_storage.format.plain_columns import fixed_batch
from kmq_storage.format.uniq_entry import UniqEntry

#: Where the first record with a text is, and when it was committed (UTC us).
Place = tuple[int, int, int]

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
    """The digests of all topics, each topic's in the order of their commits."""

    def __init__(self) -> None:
        self._by_topic: dict[bytes, dict[bytes, Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def find(self, topic_id: bytes, digest: bytes, since: int) -> tuple[int, int] | None:
        """Where the record is that was committed under a digest after an instant."""
        found = self._by_topic.get(topic_id, {}).get(digest)
        return found[:2] if found is not None and found[2] > since else None

    def apply(self, entry: UniqEntry, time: int, window: float) -> None:
        """Records were stored at a time; those before the window (seconds) are forgotten."""
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
        """A topic was deleted."""
        self._by_topic.pop(topic_id, None)

    def rows(self) -> Iterator[tuple[bytes, bytes, int, int, int]]:
        """All of them, in order."""
        for topic_id, known in self._by_topic.items():
            for digest, place in known.items():
                yield topic_id, digest, *place

    def snapshot(self) -> bytes:
        """All of them as an Arrow stream in base64."""
        columns = list(zip(*self.rows(), strict=True)) or [()] * len(_SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_batch(fixed_batch(columns, _SCHEMA))
        return b64encode(sink.getvalue())

    def restore(self, stream: bytes) -> None:
        """Have those of a checkpoint."""
        if stream:
            batch = pa.ipc.open_stream(b64decode(stream)).read_next_batch()
            for topic_id, digest, *place in zip(*(c.to_pylist() for c in batch), strict=True):
                self._by_topic.setdefault(topic_id, {})[digest] = (place[0], place[1], place[2])
