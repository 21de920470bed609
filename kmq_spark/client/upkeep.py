"""The calls of a store that maintain its files, and that find and repair damage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kmq_spark.client.consuming.reading import trim_offsets
from kmq_spark.client.handles.arguments import checked_flag, checked_seconds, checked_stored_seconds
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import planning
from kmq_storage.names import check_name

if TYPE_CHECKING:  # each call imports what it needs: few programs call any of them
    from kmq_storage.integrity.report import Report
    from kmq_storage.log.state.store_state import StoreState
    from kmq_storage.maintenance.last_look import LastLook
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
    """The maintenance of a store; each call is safe beside any readers and writers."""

    log: CommitLog
    _last_look: LastLook

    def seal(self) -> SealReport:
        """Move all records from the commit log into segments.

        Stores with a producer do this in the background when it is due.
        """
        from kmq_storage import limits
        from kmq_storage.maintenance.seal import plan_seal, seal

        def sealed(state: StoreState) -> SealReport:
            return seal(self.log, plan_seal(state), at_once=limits.SEALED_AT_ONCE)

        return planning(self.log, sealed)

    def checkpoint(self) -> CheckpointReport:
        """Write the manifest of the present state, from which the next opening goes on."""
        from kmq_storage.maintenance.checkpointing import checkpoint

        return checkpoint(self.log)

    def trim(self, topic: str, before: Mapping[int, int] | datetime) -> TrimReport:
        """Give up the records of a topic before an offset or an instant, for good.

        `before`: `{partition: offset}`, or a datetime with a time zone. A partition whose start is
        there already stays as it is. OffsetOutOfRangeError for an offset beyond the end.
        """
        from kmq_storage.maintenance.trim import trim_topic

        check_name("topic", topic)
        report = trim_topic(self.log, topic, lambda found: trim_offsets(self.log, found, before))
        self.log.refresh()  # so that this handle sees it at once
        return report

    def compact(self, topic: str) -> CompactReport:
        """Seal a topic, and rewrite its segments into fewer.

        With `cleanup="compact"` this drops records that a newer one of their key replaced; of keyed
        queues, the messages of deleted queues.
        """
        from kmq_storage.maintenance.compact import compact_topic

        return compact_topic(self.log, topic)

    def collect(self, *, grace: float | timedelta = 900.0) -> CollectReport:
        """Delete files that nothing refers to any more.

        A file that a reader may have found within the last `grace` seconds stays.
        """
        from kmq_storage.maintenance.collect import collect

        return collect(self.log, grace=checked_seconds("grace", grace))

    def maintain(self, *, grace: float | timedelta = 900.0) -> MaintainReport:
        """Do the maintenance that is due: trim by retention, seal, compact, checkpoint, collect.

        `grace`: as for `collect`, in seconds.
        """
        from kmq_storage.maintenance.maintain import maintain

        return maintain(self.log, self._last_look, grace=checked_seconds("grace", grace))

    def pin(self, seconds: float | timedelta) -> AbstractContextManager[None]:
        """Keep every present file of the store during a `with` block, for a long reader.

        The pin ends with the block, or after `seconds`, if this process dies.
        Records that are trimmed meanwhile can't be asked for anew, but a read that began before
        goes on to its end. A pin is a file in the store, so a read-only store refuses it
        (IllegalStateError).
        """
        from kmq_storage.log.disk_errors import check_writable
        from kmq_storage.maintenance.pins import pinned

        check_writable(self.log.files)
        lsn = self.log.refresh().lsn
        return pinned(self.log, lsn, checked_stored_seconds("seconds", seconds, above=0))

    def stats(self) -> StoreStats:
        """Return bytes and files by kind, garbage, and how often a byte was written."""
        from kmq_storage.maintenance.stats import store_stats

        return store_stats(self.log)

    def verify(self, deep: bool = False) -> Report:
        """Look for damage, and report it; nothing is changed.

        By default file names, lengths and the manifest are checked; with `deep` every byte. It may
        run beside readers and writers, and needs memory for one record batch at a time.
        """
        from kmq_storage.integrity.verify import verify

        return verify(self.log, deep=checked_flag("deep", deep))

    def repair(self, *, drop_damaged: bool = False) -> Report:
        """Repair the store without losing a record; the report names what is still damaged.

        `drop_damaged`: also cut out, for good, what can't be read. Readers of the range get
        DataLossError that names it, and everything else can be read. Try this on a copy of the
        store first.
        """
        from kmq_storage.integrity.repair import repair

        return repair(self.log, drop_damaged=checked_flag("drop_damaged", drop_damaged))
