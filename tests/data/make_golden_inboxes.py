"""The golden store of inboxes: `format-1-inboxes`."""

from __future__ import annotations

from pathlib import Path

from tests.data.making import golden_store


def make(folder: Path) -> None:
    """Write the store: messages that are done, held and waiting, before and behind a checkpoint."""
    with golden_store(folder) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "a", "a", "b"], [b"1", b"2", b"3", b"4", b"5"])
        queues.ack([*queues.receive("a"), *queues.receive("b")])
        store.checkpoint()
        queues.receive("a", lock_timeout=1e-6)
        queues.receive("b", lock_timeout=1e9)
