"""Make the golden store of inboxes: `python -m tests.data.make_golden_inboxes FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-inboxes` are
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
    """Write the store: messages that are done, held and waiting, before and behind a checkpoint."""
    open_identity(LocalDisk(folder), environment(), create=True, log_file_bytes=FILE_BYTES)
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "a", "a", "b"], [b"1", b"2", b"3", b"4", b"5"])
        queues.ack([*queues.receive("a"), *queues.receive("b")])
        store.checkpoint()
        queues.receive("a", lock_timeout=1e-6)
        queues.receive("b", lock_timeout=1e9)
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
