"""Per topic and producer, records stand in the order of the calls, whatever the calls are.

Finds: a batch that overtakes single sends, threads that mix their records up, and a refused
record that lets later ones pass earlier ones.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import records, values


def _numbered(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("batch_bytes", [1, 500, 1_048_576])
def test_single_sends_batches_and_arrow_keep_the_order_of_the_calls(
    store: kmq.Store, batch_bytes: int
):
    store.create_topic("t")
    number = 0
    with store.producer(batch_bytes=batch_bytes) as producer:
        for turn in range(60):
            some = _numbered(number, 1 + turn % 7)
            number += len(some)
            if turn % 3 == 0:
                producer.send_batch("t", some)
            elif turn % 3 == 1:
                producer.send_arrow("t", pa.table({"value": some}))
            else:
                for value in some:
                    producer.send("t", value)
    assert values(store, "t") == _numbered(0, number)


def test_a_staged_batch_between_small_ones_keeps_its_place(store: kmq.Store):
    store.create_topic("t")
    big = [b"%08d" % number + b"x" * 100_000 for number in range(1, 31)]
    with store.producer() as producer:
        producer.send("t", b"00000000")
        producer.send_batch("t", big)
        producer.send("t", b"00000031")
    assert [(value or b"")[:8] for value in values(store, "t")] == _numbered(0, 32)


def test_each_key_keeps_its_order_over_partitions(store: kmq.Store):
    store.create_topic("t", partitions=5)
    with store.producer(batch_bytes=2_000) as producer:
        for number in range(2_000):
            producer.send("t", b"%08d" % number, b"%d" % (number % 13))
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for record in records(store, "t"):
        by_key.setdefault(record.key, []).append(record.value)
    assert by_key == {
        b"%d" % key: [b"%08d" % number for number in range(key, 2_000, 13)] for key in range(13)
    }


def test_every_thread_finds_its_own_records_in_order(store: kmq.Store):
    store.create_topic("t")
    with store.producer(batch_bytes=3_000) as producer:

        def work(name: bytes) -> None:
            for number in range(500):
                if number % 50 == 7:
                    producer.send_batch("t", [b"%s-%08d" % (name, number)])
                else:
                    producer.send("t", b"%s-%08d" % (name, number))

        threads = [threading.Thread(target=work, args=(b"%d" % name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [value or b"" for value in values(store, "t")]
    assert len(found) == len(set(found)) == 2_000
    for name in range(4):
        own = [value for value in found if value.startswith(b"%d-" % name)]
        assert own == sorted(own)


def test_refused_records_leave_the_others_in_order_and_the_offsets_dense(store: kmq.Store):
    store.create_topic("t", max_record_bytes=20)
    with store.producer(linger=1.0) as producer:
        sent = [
            producer.send("t", b"%08d" % number + b"x" * (100 if number % 4 == 0 else 0))
            for number in range(40)
        ]
    good = [future for future in sent if not future.exception()]
    assert [future.result().offset for future in good] == list(range(30))
    assert values(store, "t") == [b"%08d" % number for number in range(40) if number % 4]


def test_many_topics_are_one_commit_and_each_keeps_its_order(store: kmq.Store):
    for name in "abc":
        store.create_topic(name)
    before = store.log.refresh().lsn
    with store.producer(linger=60.0) as producer:
        for number in range(300):
            producer.send("abc"[number % 3], b"%08d" % number)
    assert store.log.refresh().lsn == before + 1
    for position, name in enumerate("abc"):
        assert values(store, name) == [b"%08d" % number for number in range(position, 300, 3)]
