"""Make the golden store of uniq: `python -m tests.data.make_golden_uniq FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-uniq` are
never made again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import kmq_spark as kmq
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import environment

#: A hundred years: the store's records are duplicates whenever the tests run.
WINDOW = 100 * 365 * 86_400.0


def make(folder: Path) -> None:
    """Write the store: records known by a text, in a checkpoint and behind it."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=16_384), env)
    with kmq.Store(log, maintenance=False) as store, store.producer(name="p", linger=0) as producer:
        store.create_topic("t", partitions=2, uniq_window=WINDOW)
        store.create_queue("q", uniq_window=WINDOW)
        for text in ("one", "two", None, "three"):
            producer.send("t", b"first", key=text, uniq=text).result()
        producer.send_to_queue("q", b"first", uniq="one").result()
        store.checkpoint()
        producer.send("t", b"first", uniq="four").result()
        producer.send("t", b"second", uniq="two").result()
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
