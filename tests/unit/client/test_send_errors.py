"""What goes wrong with a send: at once, or through its future; and what that leaves behind.

Finds: an error of the wrong class or text, a refusal that wrote something, a full topic that
takes more or less than its capacity, and a producer that stays stuck after a failure.
"""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.errors import CommitOutcomeUnknownError
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.objects.memory import MemoryDisk
from tests.support.storage import make_topic, open_log, send
from tests.unit.client.stored import lsn, records, values


def test_an_unknown_topic_comes_through_the_future_with_the_contracted_text(store: kmq.Store):
    before = lsn(store)
    with store.producer() as producer:
        for future in (
            producer.send("nowhere", b"v"),
            producer.send_batch("nowhere", [b"v"]),
            producer.send_arrow("nowhere", pa.table({"value": [b"v"]})),
        ):
            with pytest.raises(kmq.NotFoundError) as caught:
                future.result(10)
            assert str(caught.value) == "Topic[nowhere] doesn't exist."
            assert caught.value.context["topic"] == "nowhere"
    assert lsn(store) == before


def test_an_unknown_queue_comes_through_the_future_with_the_contracted_text(store: kmq.Store):
    with store.producer() as producer:
        error = producer.send_to_queue("nowhere", b"v").exception(10)
        assert isinstance(error, kmq.NotFoundError)
        assert str(error) == "Queue[nowhere] doesn't exist."
        with pytest.raises(kmq.InvalidRequestError):
            producer.send_to_queue("nowhere", None)  # type: ignore[arg-type]


def test_a_topic_made_after_the_producer_is_found(store: kmq.Store):
    with store.producer() as producer:
        assert isinstance(producer.send("t", b"v").exception(10), kmq.NotFoundError)
        store.create_topic("t")
        assert producer.send("t", b"v").result(10).offset == 0


def test_a_topic_that_was_deleted_and_made_anew_starts_at_zero(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"a"] * 5).result(10)
        store.delete_topic("t")
        assert isinstance(producer.send("t", b"v").exception(10), kmq.NotFoundError)
        store.create_topic("t")
        assert producer.send("t", b"new").result(10).offset == 0
    assert values(store, "t") == [b"new"]


def test_partitions_that_were_added_are_used_at_once(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        assert isinstance(
            producer.send("t", b"v", partition=1).exception(10), kmq.InvalidRequestError
        )
        store.add_partitions("t", 2)
        assert producer.send("t", b"v", partition=1).result(10).partition == 1


@pytest.mark.parametrize("partition", [2**31, 2**63, 2**70])
def test_a_partition_that_no_topic_can_have_is_refused_at_once(store: kmq.Store, partition: int):
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="partition"):
        producer.send("t", b"v", partition=partition)


@pytest.mark.parametrize("partition", [1, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_refused_by_number(store: kmq.Store, partition: int):
    store.create_topic("t")
    before = lsn(store)
    with store.producer() as producer:
        error = producer.send("t", b"v", partition=partition).exception(10)
    assert isinstance(error, kmq.InvalidRequestError)
    assert "partition" in str(error)
    assert lsn(store) == before


@pytest.mark.parametrize(
    ("value", "key", "headers", "properties"),
    [
        (100, 0, {}, {}),
        (50, 50, {}, {}),
        (0, 100, {}, {}),
        (40, 0, {"a" * 10: b"x" * 50}, {}),
        (40, 0, {}, {"a" * 10: "x" * 50}),
        (40, 0, {}, {"a" * 10: b"x" * 50}),
        (40, 0, {}, {"a" * 52: 1}),
        (40, 0, {"é" * 30: None}, {}),
        (40, 0, {"a" * 10: b"x" * 20}, {"b" * 10: "y" * 20}),
    ],
)
def test_a_record_may_have_exactly_the_allowed_bytes_and_not_one_more(
    store: kmq.Store, value: int, key: int, headers: dict[str, bytes], properties: dict[str, bytes]
):
    store.create_topic("t", max_record_bytes=100)
    options = {"headers": headers, "properties": properties}
    with store.producer() as producer:
        assert producer.send("t", b"v" * value, b"k" * key, **options).result(10).offset == 0
        before = lsn(store)
        error = producer.send("t", b"v" * (value + 1), b"k" * key, **options).exception(10)
        assert isinstance(error, kmq.InvalidRequestError)
        assert "101 bytes" in str(error)
        assert "max_record_bytes" in str(error)
        assert lsn(store) == before
        row = {name: column for name, column in _as_arrow(store).items() if column.null_count == 0}
        assert producer.send_arrow("t", pa.table(row)).result(10).rows == 1
        row["value"] = pa.array([b"v" * (value + 1)], pa.binary())
        assert isinstance(
            producer.send_arrow("t", pa.table(row)).exception(10), kmq.InvalidRequestError
        )


def _as_arrow(store: kmq.Store) -> dict[str, pa.Array]:
    """The topic's first record as columns that can be sent."""
    table = store.read("t", columns=["value", "key", "headers", "properties"]).read_all()
    return {name: table.slice(0, 1)[name].combine_chunks() for name in table.column_names}


def test_the_default_limit_is_a_mebibyte_and_a_topic_may_ask_for_more(store: kmq.Store):
    store.create_topic("t")
    store.create_topic("big", max_record_bytes=5_000_000)
    with store.producer() as producer:
        assert producer.send("t", b"x" * 1_048_576).result(10).offset == 0
        assert isinstance(
            producer.send("t", b"x" * 1_048_577).exception(10), kmq.InvalidRequestError
        )
        assert producer.send("big", b"x" * 5_000_000).result(10).offset == 0
    assert [len(value or b"") for value in values(store, "big")] == [5_000_000]


def test_a_retry_of_a_commit_that_was_collected_is_acknowledged_without_an_offset(
    monkeypatch: pytest.MonkeyPatch,
):
    disk = MemoryDisk(f"memory://{uuid.uuid4().hex}")
    store, sync = kmq.Store(open_log(disk, file_bytes=4096)), LocalLog.sync
    make_topic(store.log, partitions=2)

    def late(log: LocalLog, commit: WrittenCommit) -> None:
        """The answer comes so late that the commit is collected by then."""
        monkeypatch.setattr(LocalLog, "sync", sync)
        for _ in range(20):
            send(log, b"x" * 500)
        store.seal()
        store.checkpoint()
        store.collect(grace=0)
        raise CommitOutcomeUnknownError(f"nobody knows of commit {commit.lsn}", lsn=commit.lsn)

    batch = pa.record_batch({"value": [b"d"]})
    with store.producer() as producer:
        for rows in ([b"a"], [b"b", b"c"]):
            monkeypatch.setattr(LocalLog, "sync", late)
            sent = producer.send_batch("t", rows, partition=1)
            assert [place.offset for place in sent.result(10)] == [-1] * len(rows)
        monkeypatch.setattr(LocalLog, "sync", late)
        assert producer.send_arrow("t", batch, partition=1).result(10).offsets == {}
    found = [value for value in values(store, "t") if value and not value.startswith(b"x")]
    assert sorted(found) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("linger", [0.0, 1.0])
def test_single_sends_fill_a_topic_to_its_capacity_exactly(store: kmq.Store, linger: float):
    store.create_topic("t", partitions=3, capacity=25)
    with store.producer(linger=linger) as producer:
        sent = [producer.send("t", b"%d" % number) for number in range(40)]
        errors = [future.exception(10) for future in sent]
    assert [isinstance(error, kmq.QueueFullError) for error in errors] == [False] * 25 + [True] * 15
    found = sorted(int(value or b"") for value in values(store, "t"))
    assert found == list(range(25))
    said = re.search(r"it holds (\d+) of 25 records and has room for (\d+) of", str(errors[-1]))
    assert said
    assert int(said[1]) + int(said[2]) == 25


def test_a_full_topic_counts_what_the_same_commit_adds(store: kmq.Store):
    store.create_topic("t", partitions=3, capacity=4)
    with store.producer(linger=1.0) as producer:
        first, second = (producer.send_batch("t", [value] * 3) for value in (b"1", b"2"))
        producer.flush()
    assert first.exception(10) is None
    with pytest.raises(kmq.QueueFullError, match="holds 3 of 4 records and has room for 1 of 3"):
        second.result(10)


def test_a_full_topic_refuses_batches_whole_and_writes_nothing(store: kmq.Store):
    store.create_topic("t", capacity=10)
    with store.producer() as producer:
        producer.send_batch("t", [b"v"] * 8).result(10)
        before = lsn(store)
        for future in (
            producer.send_batch("t", [b"v"] * 3),
            producer.send_arrow("t", pa.table({"value": [b"v"] * 3})),
        ):
            assert isinstance(future.exception(10), kmq.QueueFullError)
        assert lsn(store) == before
        producer.send_batch("t", [b"v"] * 2).result(10)
        before = lsn(store)
        assert isinstance(producer.send("t", b"v").exception(10), kmq.QueueFullError)
        assert isinstance(producer.send("t", b"v").exception(10), BufferError)
    assert lsn(store) == before


def test_one_full_topic_does_not_hurt_another_in_the_same_commit(store: kmq.Store):
    store.create_topic("full", capacity=5)
    store.create_topic("free")
    with store.producer(linger=1.0) as producer:
        full = [producer.send("full", b"%d" % number) for number in range(10)]
        free = [producer.send("free", b"%d" % number) for number in range(10)]
    assert [future.exception() is None for future in full] == [True] * 5 + [False] * 5
    assert [future.result().offset for future in free] == list(range(10))


def test_many_producers_together_do_not_pass_the_capacity(store: kmq.Store):
    store.create_topic("t", partitions=2, capacity=200)

    def fill(name: int) -> int:
        with store.producer(linger=0.0) as producer:
            sent = [producer.send("t", b"%d" % name) for _ in range(100)]
            return sum(future.exception(30) is None for future in sent)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(fill, range(4))) == 200
    assert store.describe_topic("t").rows == 200


def test_a_raised_capacity_makes_room(store: kmq.Store):
    store.create_topic("t", capacity=1)
    with store.producer() as producer:
        producer.send("t", b"1").result(10)
        assert isinstance(producer.send("t", b"2").exception(10), kmq.QueueFullError)
        store.alter_topic("t", capacity=2)
        assert producer.send("t", b"2").result(10).offset == 1


def test_a_newer_producer_of_the_same_name_fences_the_older(store: kmq.Store):
    store.create_topic("t")
    with store.producer(name="p") as older, store.producer() as nameless:
        older.send("t", b"1").result(10)
        with store.producer(name="p") as newer:
            newer.send("t", b"2").result(10)
            told: list[object] = []
            error = older.send("t", b"3", on_delivery=lambda *both: told.append(both)).exception(10)
            assert isinstance(error, kmq.FencedError)
            older.flush(10)
            assert told == [(error, None)]
            assert isinstance(older.send_batch("t", [b"4"]).exception(10), kmq.FencedError)
            nameless.send("t", b"5").result(10)
            newer.send("t", b"6").result(10)
    assert values(store, "t") == [b"1", b"2", b"5", b"6"]


def test_a_full_disk_fails_the_send_and_goes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import errno

    from kmq_storage.log.files.journal import Journal

    with kmq.open(tmp_path / "store") as store, store.producer() as producer:
        store.create_topic("t")
        producer.send("t", b"before").result(10)

        def no_space(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(Journal, "append", no_space)
            error = producer.send("t", b"lost").exception(10)
        assert isinstance(error, kmq.UnavailableError)
        assert error.retryable
        assert "full" in str(error)
        assert producer.send("t", b"after").result(10).offset == 1
        assert values(store, "t") == [b"before", b"after"]


@pytest.mark.parametrize(
    "options",
    [
        {"linger": -1}, {"linger": "5"}, {"linger": None}, {"linger": True},
        {"linger": float("nan")}, {"linger": float("inf")},
        {"batch_bytes": 0}, {"batch_bytes": "1m"}, {"max_pending_bytes": 0},
        {"max_pending_bytes": None}, {"durability": "disk"}, {"durability": 1},
        {"name": ""}, {"name": "../p"}, {"name": 5}, {"name": "x" * 250},
        {"transactional_id": ""}, {"name": "p", "transactional_id": "t"}, {"partitioner": "random"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_option_of_a_producer_is_refused_by_name(
    store: kmq.Store, options: dict[str, object]
):
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError):
        store.producer(**options)  # type: ignore[arg-type]
    assert lsn(store) == before


def test_a_producer_takes_only_keywords_it_knows(store: kmq.Store):
    with pytest.raises(TypeError):
        store.producer("name")  # type: ignore[misc]
    with pytest.raises(TypeError):
        store.producer(lingr=1)  # type: ignore[call-arg]


def test_pending_bytes_are_bounded_and_senders_wait_for_room(store: kmq.Store):
    store.create_topic("t")
    held = []
    with store.producer(linger=0.0, batch_bytes=10_000, max_pending_bytes=50_000) as producer:
        for _ in range(400):
            producer.send("t", b"x" * 1_000)
            held.append(len(producer))
    assert max(held) <= 60
    assert len(records(store, "t")) == 400


@pytest.mark.parametrize("topics", [1, 200])
def test_pending_bytes_are_bounded_however_long_they_linger(store: kmq.Store, topics: int):
    for number in range(topics):
        store.create_topic(f"t{number}")
    held = []
    with store.producer(linger=30.0, max_pending_bytes=1_000_000) as producer:
        for number in range(600):
            producer.send(f"t{number % topics}", bytes(20_000))
            held.append(len(producer))
    assert max(held) <= 51


def test_a_batch_larger_than_the_pending_bytes_still_goes_through(store: kmq.Store):
    store.create_topic("t")
    with store.producer(max_pending_bytes=1_000) as producer:
        producer.send_batch("t", [b"x" * 1_000] * 50)
        producer.send("t", b"last")
    assert len(records(store, "t")) == 51


def test_a_nearly_full_topic_takes_single_records_of_all_partitions_up_to_its_capacity(
    store: kmq.Store,
):
    store.create_topic("full", partitions=2, capacity=4)
    with store.producer(linger=10) as producer:
        sent = [producer.send("full", b"%d" % n, partition=n % 2) for n in range(7)]
        producer.flush()
    assert [each.exception() is None for each in sent] == [True] * 4 + [False] * 3
    assert store.describe_topic("full").rows == 4
