"""The golden store of ended queues: `format-1-ended`."""

from __future__ import annotations

from pathlib import Path

from tests.data.making import golden_store


def make(folder: Path) -> None:
    """Write the store: queues that end in runs, in the run with their messages and behind them."""
    with golden_store(folder) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "c", "d"], [b"1", b"2", b"3", b"7"])
        store.seal()
        queues.delete("a", "c")
        queues.put_batch(["a", "b", "c"], [b"4", b"5", b"6"])
        store.seal()
        store.checkpoint()
        queues.delete("c", "d")
        queues.put("d", b"8").result()
