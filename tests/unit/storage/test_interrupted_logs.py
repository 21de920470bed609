"""Ctrl-C while a handle reads or writes a commit: it counts once, whatever was half done.

Finds a commit that is applied twice, or in part, since a call was interrupted in between.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import closing

import pytest

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.memory import MemoryDisk
from tests.support.interruption import Interruption
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, open_log, unit_of

_ENGINE = "/kmq_storage/log/"


def _in_memory() -> Callable[[], CommitLog]:
    disk: Disk = MemoryDisk("memory://interrupted")
    return lambda: open_log(disk)


def _in_a_bucket() -> Callable[[], CommitLog]:
    bucket = MemoryBucket("memory-bucket://interrupted")
    open_log(BucketFiles(bucket))
    return lambda: open_log(BucketFiles(bucket), create=False)


PLACES = {"memory": _in_memory, "bucket": _in_a_bucket}


def _send(log: CommitLog) -> None:
    """One commit to both partitions: it may be applied in part."""
    log.commit([unit_of(log.files, [b"one", b"two"], partition=number) for number in range(2)])


def _counts(state: StoreState) -> list[tuple[int, int, int, int]]:
    topic = state.topic("t")
    return [(part.start, part.end, part.rows, part.size) for part in topic.parts]


@pytest.mark.parametrize("place", PLACES)
def test_a_commit_that_was_being_read_when_it_was_interrupted_counts_once(place: str):
    new_handle = PLACES[place]()
    writer = new_handle()
    make_topic(writer)
    at, interrupted = 1, True
    while interrupted:
        reader = new_handle()
        reader.refresh()
        _send(writer)
        interrupted = False
        try:
            with Interruption(at, _ENGINE):
                reader.refresh()
        except KeyboardInterrupt:
            interrupted = True
        assert _counts(reader.refresh()) == _counts(writer.refresh()), at
        reader.close()
        at += 1
    assert at > 10


def test_a_commit_that_was_being_written_when_it_was_interrupted_to_a_bucket_counts_once_or_not():
    new_handle = _in_a_bucket()
    writer = new_handle()
    make_topic(writer)
    at, interrupted = 1, True
    while interrupted:
        interrupted = False
        try:
            with Interruption(at, _ENGINE):
                _send(writer)
        except KeyboardInterrupt:
            interrupted = True
        _send(writer)
        with closing(new_handle()) as other:
            assert _counts(writer.refresh()) == _counts(other.refresh()), at
        at += 1
    assert at > 10


def test_nothing_is_collected_while_an_interruption_may_come():
    """It would come in the garbage of another test, be lost there and told as an error of this."""
    with Interruption(1_000_000):
        assert not gc.isenabled()
    assert gc.isenabled()
