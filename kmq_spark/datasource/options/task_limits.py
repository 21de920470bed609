"""The limits that a read gives for its tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """The limits of a read's tasks; None for those not given."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
