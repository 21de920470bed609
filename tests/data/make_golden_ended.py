"""Make the golden store of ended queues: `python -m tests.data.make_golden_ended FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-ended` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kmq_spark as kmq
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import FILE_BYTES, environment, without_traces


def make(folder: Path) -> None:
    """Write the store: queues that end in runs, in the run with their messages and behind them."""
    open_identity(LocalDisk(folder), environment(), create=True, log_file_bytes=FILE_BYTES)
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "c", "d"], [b"1", b"2", b"3", b"7"])
        store.seal()
        queues.delete("a", "c")
        queues.put_batch(["a", "b", "c"], [b"4", b"5", b"6"])
        store.seal()
        store.checkpoint()
        queues.delete("c", "d")
        queues.put("d", b"8").result()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
