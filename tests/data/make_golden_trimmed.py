"""Make the golden store of trimmed queues: `python -m tests.data.make_golden_trimmed FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-trimmed` are
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
    """Write the store: queues that begin in a run of no messages, and in one with some."""
    open_identity(LocalDisk(folder), environment(), create=True, log_file_bytes=FILE_BYTES)
    with kmq.open(folder) as store:
        for name, start in (("merged", 7), ("alone", 8)):
            queues = store.keyed_queues(name, retention_bytes=1 << 40)
            queues.put_batch(["a", "b", "c", "a"], [b"1", b"2", b"3", b"4"])
            store.seal()
            queues.delete("c")
            queues.put_batch(["a", "b", "c"], [b"5", b"6", b"7"])
            store.seal()
            queues.put_batch(["a", "d"], [b"8", b"9"])
            store.trim(name, {0: start})
            if name == "merged":
                store.seal()
                store.compact(name)
                store.checkpoint()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
