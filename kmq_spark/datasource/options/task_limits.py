"""Into how many tasks a read was asked to be cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """What a read was asked for about its tasks; None where it was not."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
