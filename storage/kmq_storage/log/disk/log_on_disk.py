"""The parts of one handle's log on a disk that its readers and writers share."""

from __future__ import annotations

from dataclasses import dataclass

from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.log.disk.mending import Mending
from kmq_storage.log.disk.replica import Replica
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.log_time import LogTime
from kmq_storage.objects.disk import Disk


@dataclass(frozen=True, slots=True)
class LogOnDisk:
    """The disk of a log, its hint page, and what mends it."""

    disk: Disk
    identity: Identity
    hint: Hint
    mending: Mending
    environment: Environment
    time: LogTime

    def new_journal(self) -> Journal:
        """The files of the log, opened separately for one reader."""
        return Journal(self.disk, self.identity, self.hint)

    def new_replica(self, *, indexed: bool) -> Replica:
        """A replica at the newest checkpoint; if `indexed`, it knows where records are."""
        return Replica(self.disk, self.new_journal(), indexed=indexed)
