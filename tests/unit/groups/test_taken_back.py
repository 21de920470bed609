"""A failed sync of a store with `durability="os"` takes back that a member joined.

Finds: two members of one epoch, which both read all partitions and commit over each other.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming.member_watch import MemberWatch
from kmq_storage.groups.exclusive import ExclusiveMembership
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.members import without_watch
from tests.support.storage import open_log

TakeBack = Callable[[], None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path, durability="os", maintenance=False) as store, without_watch():
        store.create_topic("t", partitions=2)
        with store.producer() as producer:
            for number in (0, 1):
                producer.send_batch("t", [b"a", b"b"], partition=number)
        yield store


@pytest.fixture
def take_back(tmp_path: Path, store: kmq.Store) -> Iterator[TakeBack]:
    """Lose what is committed between now and that call."""
    disk = FailingDisk(tmp_path)
    log = open_log(disk, durable=False)
    log.sync(log.written_state().lsn)
    disk.after_failed_sync = partial(drop_pages, disk, log._end.cursor.position)

    def lose() -> None:
        disk.failing["sync"] = errno.EIO
        with pytest.raises(kmq.UnavailableError, match="lost commit"):
            log.sync(log.written_state().lsn)

    yield lose
    log.close()


def _member(store: kmq.Store, **options: bool) -> kmq.Consumer:
    return store.consumer("g", topics=["t"], **options)


@pytest.mark.parametrize("has_read", [False, True])
def test_a_member_whose_joining_was_taken_back_joins_again(
    store: kmq.Store, take_back: TakeBack, has_read: bool
):
    with _member(store) as first:
        assert len(first.assignment()["t"]) == 2
        if has_read:
            assert first.poll(timeout=0) is not None
        take_back()
        with _member(store) as second:
            assert len(second.assignment()["t"]) == 2
            watch = first._watch
            assert isinstance(watch, MemberWatch)
            watch.look(first._taking)
            assert first.poll(timeout=0) is None
            assert [len(each.assignment()["t"]) for each in (second, first)] == [1, 1]
            assert len({each.epoch for each in store.describe_group("g").members}) == 2


def test_what_a_member_read_whose_joining_was_taken_back_is_not_committed_for_another_one(
    store: kmq.Store, take_back: TakeBack
):
    with _member(store, auto_commit=False) as first, store.producer() as producer:
        assert len(first.consume(timeout=0)) == 4
        transaction = producer.transaction()
        with pytest.raises(kmq.TransactionAbortedError), transaction:
            transaction.commit_offsets(first)
            take_back()
            second = _member(store)
            assert second.assignment() == {"t": [0, 1]}
        with pytest.raises(kmq.FencedError, match="lost its partitions"):
            first.commit()
        assert store.describe_group("g").committed == {}
        assert len(second.consume(timeout=0)) == 4
        second.commit()
        assert store.describe_group("g").committed == {"t": {0: 2, 1: 2}}
        second.close()


def test_such_a_member_commits_nothing_for_an_exclusive_one_that_joined_since(
    store: kmq.Store, take_back: TakeBack
):
    with _member(store, auto_commit=False) as first:
        assert len(first.consume(timeout=0)) == 4
        take_back()
        query = ExclusiveMembership(store.log, "g", "query", told="a query")
        with pytest.raises(kmq.FencedError):
            first.commit()
        query.leave()
        assert store.describe_group("g").committed == {}
