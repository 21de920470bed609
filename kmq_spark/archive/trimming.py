"""Giving up in the log what an archive holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from kmq_storage.model import to_datetime

if TYPE_CHECKING:
    from kmq_spark.client.store import Store

Offsets = Mapping[str, Mapping[int, int]]


def trim_archived(store: Store, group: str, keep: float) -> Offsets:
    """Trim what the group of an archive has passed and is older than `keep` seconds.

    Returns the new starts by topic and partition. Records that aren't archived stay.
    """
    now = to_datetime(store.log.environment.now_us())
    starts: dict[str, Mapping[int, int]] = {}
    for topic, archived in store.describe_group(group).committed.items():
        kept_from = store.offsets_for_time(topic, now - timedelta(seconds=keep))
        starts |= store.trim(topic, _before(archived, kept_from)).starts
    return starts


def _before(archived: Mapping[int, int], kept_from: Mapping[int, int | None]) -> dict[int, int]:
    """Where each partition is to begin: nothing is kept of one that has no record so late."""
    before = {}
    for partition, offset in archived.items():
        kept = kept_from[partition]
        before[partition] = offset if kept is None else min(offset, kept)
    return before
