"""Commits of a consumer's positions hold what moved, however many partitions are read.

Finds: commits that grow with the partitions; positions left out that the group does not have.
"""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage.format.entries import GroupOffsetsEntry

PARTITIONS = 50


@pytest.fixture
def wide(store: kmq.Store) -> kmq.Store:
    """A record in each of many partitions."""
    store.create_topic("t", partitions=PARTITIONS)
    send(store, *range(PARTITIONS))
    return store


def send(store: kmq.Store, *partitions: int) -> None:
    """A record to each of these partitions."""
    with store.producer() as producer:
        for partition in partitions:
            producer.send("t", b"%d" % partition, partition=partition)


def offsets_since(store: kmq.Store, lsn: int) -> list[int]:
    """How many offsets each commit behind this one has, of those that have any."""
    found = []
    for commit in store.commits(lsn + 1) if store.log.refresh().lsn > lsn else ():
        entries = [each for each in commit.entries if isinstance(each, GroupOffsetsEntry)]
        found += [sum(len(each.offsets) for each in entries)] if entries else []
    return found


def drain(consumer: kmq.Consumer) -> int:
    """Take all that is there; how many records."""
    count = 0
    while consumer.poll() is not None:
        count += 1
    return count


def test_a_commit_has_what_moved_since_the_last_one(wide: kmq.Store):
    with wide.consumer("g", topics=["t"]) as consumer:
        assert drain(consumer) == PARTITIONS
        lsn = wide.log.refresh().lsn
        consumer.commit()
        send(wide, 7, 9)
        assert drain(consumer) == 2
        consumer.commit()
        consumer.commit()
        consumer.seek("t", 3, 0)
        consumer.commit()
        assert offsets_since(wide, lsn) == [PARTITIONS, 2, 1]
        expected = dict.fromkeys(range(PARTITIONS), 1) | {7: 2, 9: 2, 3: 0}
        assert wide.describe_group("g").committed == {"t": expected}


def test_commits_by_itself_have_the_partition_of_the_record(wide: kmq.Store):
    with wide.consumer("g", topics=["t"], auto_commit=True) as consumer:
        assert drain(consumer) == PARTITIONS
        lsn = wide.log.refresh().lsn
        for number in range(5):
            send(wide, number)
            assert drain(consumer) == 1
        assert offsets_since(wide, lsn) == [1] * 5


def test_where_nothing_was_read_yet_the_beginning_is_committed(wide: kmq.Store):
    with wide.consumer("g", topics=["t"], auto_offset_reset="latest") as consumer:
        consumer.commit()
        assert wide.describe_group("g").committed == {"t": dict.fromkeys(range(PARTITIONS), 1)}


def test_who_was_replaced_is_told_though_nothing_moved(wide: kmq.Store):
    with wide.consumer("g", topics=["t"], name="a") as older:
        assert drain(older) == PARTITIONS
        older.commit()
        with wide.consumer("g", topics=["t"], name="a"), pytest.raises(kmq.FencedError):
            older.commit()


def test_a_transaction_has_the_offsets_of_what_it_was_made_of(wide: kmq.Store):
    wide.create_topic("made")
    with wide.consumer("g", topics=["t"]) as consumer, wide.producer() as producer:
        assert drain(consumer) == PARTITIONS
        lsn = wide.log.refresh().lsn
        for number in (None, 3, 4):
            if number is not None:
                send(wide, number)
                assert drain(consumer) == 1
            with producer.transaction() as tx:
                tx.send("made", b"1")
                tx.commit_offsets(consumer)
        assert offsets_since(wide, lsn) == [PARTITIONS, 1, 1]
        expected = dict.fromkeys(range(PARTITIONS), 1) | {3: 2, 4: 2}
        assert wide.describe_group("g").committed == {"t": expected}


def test_a_transaction_of_who_was_replaced_is_aborted_though_nothing_moved(wide: kmq.Store):
    wide.create_topic("made")
    with wide.consumer("g", topics=["t"], name="a") as older, wide.producer() as producer:
        assert drain(older) == PARTITIONS
        older.commit()
        with (
            wide.consumer("g", topics=["t"], name="a"),
            pytest.raises(kmq.TransactionAbortedError),
            producer.transaction() as tx,
        ):
            tx.send("made", b"1")
            tx.commit_offsets(older)
        assert wide.offsets("made") == {0: (0, 0)}
