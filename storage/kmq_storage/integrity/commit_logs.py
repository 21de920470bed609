"""The commit log of a store, on a disk or in a bucket."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_storage.integrity.log_files import LogFilesCheck
from kmq_storage.integrity.report import Finding
from kmq_storage.integrity.small_files import check_hint
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.hint import open_hint
from kmq_storage.log.journal import Journal
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.state import StoreState


def check_log(log: CommitLog, state: StoreState, *, deep: bool) -> Iterator[Finding]:
    """What is wrong with the commits, as far as a state knows that there are some."""
    if isinstance(log, LocalLog):
        hint = open_hint(log.disk, log.identity.seed)
        yield from check_hint(hint)
        journal = Journal(log.disk, log.identity, hint)
        yield from LogFilesCheck(journal, state, deep=deep).findings()
        return
    from kmq_storage.integrity.commit_objects import check_objects  # buckets are imported late
    from kmq_storage.objects.bucket_files import BucketFiles

    assert isinstance(log.disk, BucketFiles), "the log is on a disk or in a bucket"
    yield from check_objects(log.disk, log.identity.seed, state, deep=deep)
