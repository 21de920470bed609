"""How old records are, where what is too old is given up for good."""

from __future__ import annotations

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated

#: A file system stamps with the time of the kernel's last tick; none is longer.
_TICK_US = 10_000


def surely_now(log: CommitLog) -> int:
    """The time that has come by the clock of this host and by that of the store, UTC us.

    To a host whose clock is ahead of the others' all is old. It takes some requests of a bucket.
    """
    with translated(log.files.url):
        return min(log.environment.now_us(), log.files.now() + _TICK_US)
