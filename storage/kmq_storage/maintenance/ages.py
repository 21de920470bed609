"""The time by which old records are dropped for good."""

from __future__ import annotations

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated

#: A file system dates files by the kernel's last tick; no tick is longer than this.
_TICK_US = 10_000


def cautious_now(log: CommitLog) -> int:
    """The time (UTC us) by this host's clock or by the store's, whichever is earlier.

    A host whose clock is ahead would otherwise drop records too early. In a bucket, this takes some
    requests.
    """
    with translated(log.files.url):
        return min(log.environment.now_us(), log.files.now() + _TICK_US)
