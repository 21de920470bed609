"""Keyed queues for tests: what a dictionary of lists says of them, and indexes without a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from kmq_storage.keyed.parts import Parts


def expected_indexes(
    queues: dict[bytes, list[bytes]], batch: Iterable[tuple[bytes, bytes]]
) -> list[int]:
    """Append messages to the lists; the index that each has there."""
    indexes = []
    for queue, message in batch:
        messages = queues.setdefault(queue, [])
        indexes.append(len(messages))
        messages.append(message)
    return indexes


def build(arrivals: Iterable[Sequence[bytes]]) -> Parts:
    """The parts of messages of these queues, which came one behind the other."""
    parts = Parts()
    for arrived in arrivals:
        end = parts.end + len(arrived)
        parts.add(pa.array(arrived, pa.binary()), np.arange(parts.end, end), end)
    return parts
