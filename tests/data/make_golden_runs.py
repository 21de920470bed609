"""The golden store of runs: `format-1-runs`."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden_keyed import make as make_queues
from tests.data.making import without_traces


def make(folder: Path) -> None:
    """Write the store: the golden queues sealed twice, with and without compression."""
    make_queues(folder)
    with kmq.open(folder) as store:
        store.seal()
        store.alter_topic("inbox", compression="lz4")
        queues = store.keyed_queues("inbox")
        queues.put_batch(["key 1", "key 21", "key 1"], [b"value 1", b"value 21", b"value 1"])
        store.seal()
        store.checkpoint()
    without_traces(folder)
