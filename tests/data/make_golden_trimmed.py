"""The golden store of trimmed queues: `format-1-trimmed`."""

from __future__ import annotations

from pathlib import Path

from tests.data.making import golden_store


def make(folder: Path) -> None:
    """Write the store: queues that begin in a run of no messages, and in one with some."""
    with golden_store(folder) as store:
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
