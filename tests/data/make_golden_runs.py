"""Make the golden store of runs: `python -m tests.data.make_golden_runs FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-runs` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden import without_traces
from tests.data.make_golden_keyed import make as make_queues


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


if __name__ == "__main__":
    make(Path(sys.argv[1]))
