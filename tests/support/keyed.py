"""Keyed queues for tests: a dictionary of lists, indexes without a store, maintenance by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.keyed.parts import Parts
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.compact import merge, plan_merges
from kmq_storage.maintenance.reports import CompactReport
from kmq_storage.maintenance.thinning import thin
from kmq_storage.objects.disk import Disk
from tests.support.engine import open_engine

TOPIC = "inbox"


def expected_indexes(
    queues: dict[bytes, list[bytes]], batch: Iterable[tuple[bytes, bytes]]
) -> list[int]:
    """Append messages to the lists; the index that each has there."""
    indexes = []
    for queue, message in batch:
        messages = queues.setdefault(queue, [])
        indexes.append(len(messages))
        messages.append(message)
    return indexes


def build(arrivals: Iterable[Sequence[bytes]]) -> Parts:
    """The parts of messages of these queues, which came one behind the other."""
    parts = Parts()
    for arrived in arrivals:
        end = parts.end + len(arrived)
        parts.add(pa.array(arrived, pa.binary()), np.arange(parts.end, end), end)
    return parts


def merge_runs(store: Store, now: int = 0) -> None:
    """Merge the runs of `TOPIC`; ends of queues may be old enough to go at this time (UTC us)."""
    state = store.log.refresh()
    merge(store.log, plan_merges(state.topic(TOPIC), state.lsn, now=now))


def files_read(disk: Disk, queue: str, first: int) -> int:
    """How many files a fresh handle reads for ten messages of a queue."""
    read = set[str]()
    stored = ChunkReader.stored

    def noted(self: ChunkReader, chunk: Any, layout: Any) -> pa.RecordBatch:
        read.add(chunk.location.file)
        return stored(self, chunk, layout)

    with patch.object(ChunkReader, "stored", noted), open_engine(disk) as store:
        assert len(store.keyed_queues(TOPIC).get(queue, first, 10)) == 10
    return len(read)


def thin_runs(store: Store) -> CompactReport:
    """Write anew the runs of `TOPIC` of which more than half is dead, however small they are."""
    state = store.log.refresh()
    with patch.object(limits, "RUN_BYTES", 0):
        return thin(store.log, state.topic(TOPIC), state.lsn)


#: All that maintenance does to the runs of `TOPIC`, by name.
STEPS: dict[str, Callable[[Store], object]] = {
    "seal": Store.seal,
    "merge": merge_runs,
    "thin": thin_runs,
    "checkpoint": Store.checkpoint,
    "collect": lambda store: collect(store.log, grace=0.0),
}
