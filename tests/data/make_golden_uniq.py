"""The golden store of uniq: `format-1-uniq`."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from tests.data.making import golden_log

#: A hundred years: the store's records are duplicates whenever the tests run.
WINDOW = 100 * 365 * 86_400.0


def make(folder: Path) -> None:
    """Write the store: records known by a text, in a checkpoint and behind it."""
    with (
        golden_log(folder, file_bytes=16_384) as log,
        kmq.Store(log, maintenance=False) as store,
        store.producer(name="p", linger=0) as producer,
    ):
        store.create_topic("t", partitions=2, uniq_window=WINDOW)
        store.create_queue("q", uniq_window=WINDOW)
        for text in ("one", "two", None, "three"):
            producer.send("t", b"first", key=text, uniq=text).result()
        producer.send_to_queue("q", b"first", uniq="one").result()
        store.checkpoint()
        producer.send("t", b"first", uniq="four").result()
        producer.send("t", b"second", uniq="two").result()
