"""The calls of a store that keep it tidy and whole."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kmq_spark.client.arguments import checked_flag, checked_seconds, checked_stored_seconds
from kmq_spark.client.reading import trim_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import planning

if TYPE_CHECKING:  # each call imports what it does, for few programs call any of them
    from kmq_storage.integrity.report import Report
    from kmq_storage.log.state import StoreState
    from kmq_storage.maintenance.reports import (
        CheckpointReport,
        CollectReport,
        CompactReport,
        MaintainReport,
        SealReport,
        StoreStats,
        TrimReport,
    )


class Upkeep:
    """What a store does for its files: safe at any moment beside all readers and writers."""

    log: CommitLog

    def seal(self) -> SealReport:
        """Move every record from the commit log into segments; producers' stores do it in time."""
        from kmq_storage import limits
        from kmq_storage.maintenance.seal import plan_seal, seal

        def sealed(state: StoreState) -> SealReport:
            return seal(self.log, plan_seal(state), at_once=limits.SEALED_AT_ONCE)

        return planning(self.log, sealed)

    def checkpoint(self) -> CheckpointReport:
        """Write the manifest of what is there now, so that opening goes on from here."""
        from kmq_storage.maintenance.checkpointing import checkpoint

        return checkpoint(self.log)

    def trim(self, topic: str, before: Mapping[int, int] | datetime) -> TrimReport:
        """Give up the records before `{partition: offset}` or an instant.

        Below the start nothing happens; beyond the end is OffsetOutOfRangeError.
        """
        from kmq_storage.maintenance.trim import trim_topic

        report = trim_topic(self.log, topic, lambda found: trim_offsets(self.log, found, before))
        self.log.refresh()  # who reads by this handle knows it, too
        return report

    def compact(self, topic: str) -> CompactReport:
        """Rewrite a topic's segments into fewer; with `cleanup="compact"` without old values.

        Of keyed queues without those that were deleted. Both are sealed first.
        """
        from kmq_storage.maintenance.compact import compact_topic

        return compact_topic(self.log, topic)

    def collect(self, *, grace: float | timedelta = 900.0) -> CollectReport:
        """Delete files that nothing refers to, and that nobody found within `grace` seconds."""
        from kmq_storage.maintenance.collect import collect

        return collect(self.log, grace=checked_seconds("grace", grace))

    def maintain(self, *, grace: float | timedelta = 900.0) -> MaintainReport:
        """Do what is due: trim by retention, seal, compact, checkpoint, collect."""
        from kmq_storage.maintenance.maintain import maintain

        return maintain(self.log, grace=checked_seconds("grace", grace))

    def pin(self, seconds: float | timedelta) -> AbstractContextManager[None]:
        """Keep every file of what is there now, for a long reader, during a `with` block.

        At most for so many seconds, should this process die. Offsets that are trimmed meanwhile
        can't be asked for anew, but what was found before can be read to its end. A pin is a file
        in the store: IllegalStateError where that was opened read-only.
        """
        from kmq_storage.log.disk_errors import check_writable
        from kmq_storage.maintenance.pins import pinned

        check_writable(self.log.files)
        lsn = self.log.refresh().lsn
        return pinned(self.log, lsn, checked_stored_seconds("seconds", seconds, above=0))

    def stats(self) -> StoreStats:
        """Bytes and files by kind, garbage, and how often a byte was written."""
        from kmq_storage.maintenance.stats import store_stats

        return store_stats(self.log)

    def verify(self, deep: bool = False) -> Report:
        """Look for damage: at what names, lengths and manifest say, and with `deep` at every byte.

        Changes nothing and may take place at any time; records are read a batch at a time.
        """
        from kmq_storage.integrity.verify import verify

        return verify(self.log, deep=checked_flag("deep", deep))

    def repair(self, *, drop_damaged: bool = False) -> Report:
        """Make the store whole again, losing nothing; the report says what is damaged still.

        With `drop_damaged` what can't be read is cut out for good: readers get DataLossError with
        the range, and all else goes on. Try it on a copy first.
        """
        from kmq_storage.integrity.repair import repair

        return repair(self.log, drop_damaged=checked_flag("drop_damaged", drop_damaged))
