"""Deduplication: which record was stored first under a `uniq` text within the topic's window.

The digests of these texts are entries of the commit log, so the answer is exact and the same for
every writer.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict, defaultdict
from itertools import chain, groupby, repeat
from operator import itemgetter

import numpy as np
import pyarrow as pa

from kmq_storage.format.plain_columns import fixed_batch, numbers_of
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
        self._by_topic = defaultdict[bytes, OrderedDict[bytes, FirstRecord]](OrderedDict)

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def find(self, topic_id: bytes, digest: bytes, since: int) -> tuple[int, int] | None:
        """Partition and offset of the record committed under a digest after `since` (UTC us)."""
        known = self._by_topic.get(topic_id)
        found = known.get(digest) if known else None
        return found[:2] if found is not None and found[2] > since else None

    def apply(self, entry: UniqEntry, time: int, window: float) -> None:
        """Add the records of a commit at `time`; forget those older than the window (seconds)."""
        self.expire(entry.topic_id, time, window)
        known = self._by_topic[entry.topic_id]
        for partition, offset, digest in entry.uniqs:
            known.pop(digest, None)
            known[digest] = partition, offset, time

    def forget(self, topic_id: bytes) -> None:
        """Drop the digests of a deleted topic."""
        self._by_topic.pop(topic_id, None)

    def expire(self, topic_id: bytes, time: int, window: float) -> None:
        """Forget a topic's records that are older at `time` (UTC us) than the window (seconds)."""
        known, since = self._by_topic.get(topic_id), time - round(window * 1e6)
        while known:
            if known[next(iter(known))][2] > since:
                return
            known.popitem(last=False)
        self.forget(topic_id)

    def snapshot(self) -> bytes:
        """All digests as an Arrow stream in base64, for a checkpoint."""
        by_topic = self._by_topic
        ids = [*chain.from_iterable(repeat(each, len(by_topic[each])) for each in by_topic)]
        digests = [*chain.from_iterable(by_topic.values())]
        places = chain.from_iterable(known.values() for known in by_topic.values())
        numbers = np.fromiter(chain.from_iterable(places), np.int64).reshape(-1, 3)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_batch(fixed_batch([ids, digests, *numbers.T], _SCHEMA))
        return b64encode(sink.getvalue())

    def restore(self, stream: bytes) -> None:
        """Load the digests that `snapshot` stored in a checkpoint."""
        if stream:
            columns = pa.ipc.open_stream(b64decode(stream)).read_next_batch().columns
            ids, digests = (_ids_of(each) for each in columns[:2])
            places = zip(*(numbers_of(each).tolist() for each in columns[2:]), strict=True)
            for topic_id, known in groupby(zip(ids, digests, places, strict=True), itemgetter(0)):
                self._by_topic[topic_id].update(map(itemgetter(1, 2), known))


def _ids_of(column: pa.Array) -> list[bytes]:
    found: list[bytes] = np.frombuffer(column.buffers()[1], "V16", len(column)).tolist()
    return found
