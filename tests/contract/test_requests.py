"""How many requests things cost: each is money and a round trip.

Finds a list on the way of every commit, a follower that hammers, and a file that is fetched twice.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.errors import UnavailableError
from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog, pause_after
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.open import open_files
from tests.support.counting_bucket import CountingBucket
from tests.support.fault_proxy import Fault, FaultProxy, Meeting
from tests.support.s3 import S3Server
from tests.support.storage import make_topic, open_log, send, unit_of, values_of


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(moto, hang_seconds=0.0) as started:
        yield started


def _methods(proxy: FaultProxy) -> Counter[str]:
    return Counter("LIST" if each.is_list else each.method for each in proxy.requests)


def test_a_busy_writer_makes_one_request_per_commit(proxy: FaultProxy):
    log = open_log(open_files(proxy.server.new_url(), storage_options=proxy.options()))
    make_topic(log)
    send(log, b"0")
    proxy.requests.clear()
    units = [unit_of(log.files, [b"%d" % n]) for n in range(20)]
    for unit in units:
        log.commit([unit])
    assert _methods(proxy) == {"PUT": 20}


def test_a_follower_fetches_a_commit_once_and_looks_once_more(proxy: FaultProxy):
    url, options = proxy.server.new_url(), proxy.options()
    log, reader = (open_log(open_files(url, storage_options=options)) for _ in range(2))
    make_topic(log)
    send(log, b"0")
    assert values_of(reader) == [b"0"]
    send(log, b"1")
    proxy.requests.clear()
    assert values_of(reader) == [b"0", b"1"]
    assert _methods(proxy) == {"GET": 2}, "\n".join(map(str, proxy.requests))


def test_a_step_of_a_waiting_follower_is_one_request(proxy: FaultProxy):
    url, options = proxy.server.new_url(), proxy.options()
    log, reader = (open_log(open_files(url, storage_options=options)) for _ in range(2))
    make_topic(log)
    for n in range(3):
        lsn = reader.refresh().lsn
        send(log, b"%d" % n)
        proxy.requests.clear()
        assert reader.wait(lsn, 60.0)
        assert reader.state.lsn == lsn + 1
        assert _methods(proxy) == {"GET": 1}


def test_a_consumer_at_the_tail_makes_one_request_more_when_it_comes_again(proxy: FaultProxy):
    url, options = proxy.server.new_url(), proxy.options()
    with (
        kmq.open(url, storage_options=options, maintenance=False) as store,
        kmq.open(url, storage_options=options, read_only=True) as other,
    ):
        store.create_topic("t")
        consumer = other.consumer(topics="t")
        assert consumer.poll(0.0) is None
        producer = store.producer()
        for _ in range(3):
            producer.send("t", b"x").result(60)
            proxy.requests.clear()
            assert consumer.poll(60.0) is not None  # it begins with a look for all that is there
            assert _methods(proxy) == {"GET": 2}, "\n".join(map(str, proxy.requests))


def test_an_idle_follower_goes_on_with_long_pauses_however_short_its_calls_are(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    log = open_log(open_files(proxy.server.new_url(), storage_options=proxy.options()))
    make_topic(log)
    lsn = log.refresh().lsn
    monkeypatch.setattr(limits, "FOLLOW_PAUSE_FIRST", 0.001)
    assert not log.wait(lsn, 1.0)
    proxy.requests.clear()
    for _ in range(5):
        assert not log.wait(lsn, 0.3)  # no longer than the pauses are by now
    assert len(proxy.requests) <= 10  # two a call at most, where short pauses make hundreds


def test_an_idle_consumer_asks_twice_a_poll_at_most(proxy: FaultProxy):
    url, options = proxy.server.new_url(), proxy.options()
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        with store.consumer(topics=["t"]) as consumer:
            assert consumer.poll(timeout=1.5) is None  # by now the pauses are longer than a poll
            proxy.requests.clear()
            for _ in range(20):
                assert consumer.poll(timeout=0.02) is None
    assert len(proxy.requests) <= 40
    assert set(_methods(proxy)) == {"GET"}


def test_an_idle_follower_makes_at_most_1800_requests_an_hour():
    begun, requests = 10.0, 0
    idle = begun
    while idle < begun + 3600.0:
        idle += pause_after(idle)
        requests += 1
    assert requests <= 1800
    assert pause_after(0.0) == limits.FOLLOW_PAUSE_FIRST


def test_a_waiting_reader_asks_ever_more_rarely(proxy: FaultProxy):
    log = open_log(open_files(proxy.server.new_url(), storage_options=proxy.options()))
    make_topic(log)
    lsn = log.refresh().lsn
    proxy.requests.clear()
    assert not log.wait(lsn, 1.5)
    assert 1 <= len(proxy.requests) <= 20
    assert set(_methods(proxy)) == {"GET"}


def test_a_reader_has_many_files_on_their_way_and_fetches_each_once(proxy: FaultProxy):
    url, options = proxy.server.new_url(), proxy.options()
    log = open_log(open_files(url, storage_options=options))
    make_topic(log)
    for n in range(30):
        send(log, b"%d" % n, staged=True)
    reader = open_log(open_files(url, storage_options=options))
    reader.refresh()
    proxy.requests.clear()
    proxy.choose = meeting = Meeting("staged", 8)
    topic = reader.refresh().topic("t")
    parts = scan(reader, ChunkReader(reader.files), topic, 0, (0, 30), batch_rows=1000)
    values = [value for part in parts for value in part.batch.column("value").to_pylist()]
    assert values == [b"%d" % n for n in range(30)]
    assert proxy.count("GET", below="staged") == 30
    assert not meeting.failed


def test_large_batches_of_a_segment_are_fetched_ahead_of_a_reader(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 2)
    values = [b"%d" % n * 900_000 for n in range(10)] * 2
    url, options = proxy.server.new_url(), proxy.options()
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_arrow("t", pa.table({"value": values})).result(60)
        assert store.seal().segments == 1
    with kmq.open(url, storage_options=options, read_only=True) as store:
        store.topics()
        proxy.requests.clear()
        proxy.choose = meeting = Meeting("segments", 6, alone=1)  # where they are in it
        read = store.read("t", columns=["value"]).read_all()["value"]
    assert read.to_pylist() == values
    assert not meeting.failed
    assert proxy.count("GET", below="segments") <= 12


@pytest.mark.parametrize("sends", [1, 8])
def test_large_batches_are_on_their_way_at_once(proxy: FaultProxy, sends: int):
    numbers = pa.array([row // 2 for row in range(16)], pa.int32())
    rows = pa.table({"value": [b"x" * 600_000] * 16, "partition": numbers})
    with kmq.open(proxy.server.new_url(), storage_options=proxy.options()) as store:
        store.create_topic("t", partitions=8)
        with store.producer(linger=0.0) as producer:
            proxy.requests.clear()
            proxy.choose = meeting = Meeting("staged", 6)
            each = len(rows) // sends
            for first in range(0, len(rows), each):
                producer.send_arrow("t", rows.slice(first, each))
        assert store.read("t").read_all()["value"].equals(rows["value"])
    assert proxy.count("PUT", below="staged") == 8
    assert not meeting.failed


def test_a_large_batch_that_can_not_be_uploaded_fails_alone(proxy: FaultProxy):
    with kmq.open(proxy.server.new_url(), storage_options=proxy.options()) as store:
        store.create_topic("t")
        with store.producer(linger=0.0) as producer:
            proxy.choose = lambda request: Fault.REFUSE_501 if "staged" in request.path else None
            large = producer.send_arrow("t", pa.table({"value": [b"x" * 600_000] * 2}))
            small = producer.send("t", b"small")
            assert small.result(60).offset == 0
            with pytest.raises(UnavailableError):
                large.result(60)
        assert store.offsets("t") == {0: (0, 1)}


def test_no_commit_is_larger_than_four_mib_and_larger_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    bucket = CountingBucket(f"memory-bucket://{uuid.uuid4().hex}")
    with bucket.store() as store, store.producer(linger=600.0) as producer:
        store.create_topic("t", partitions=100)
        for number in range(10_000):
            producer.send("t", bytes(1_000), partition=number % 100)
        producer.flush()
        sizes = [file.length for file in store.log.files.walk("log")]
        assert 1 << 20 < max(sizes) <= 4 << 20
        assert store.read("t").read_all().num_rows == 10_000
        monkeypatch.setattr(limits, "COMMIT_OBJECT_BYTES_MAX", 100)
        with pytest.raises(kmq.InvalidRequestError, match="more than a bucket takes at once"):
            store.create_topic("another")


def test_what_was_read_is_kept_up_to_a_number_of_bytes():
    bucket = CountingBucket("memory-bucket://cache")
    identity = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))
    log = BucketLog(BucketFiles(bucket), identity, SYSTEM)
    make_topic(log)
    for n in range(10):
        send(log, bytes([n]) * 100_000)
    small = BucketLog(BucketFiles(bucket, cache_bytes=250_000), identity, SYSTEM)
    assert len(values_of(small)) == 10
    large = BucketLog(BucketFiles(bucket), identity, SYSTEM)
    large.refresh()
    bucket.asked.clear()
    assert len(values_of(large)) == len(values_of(large)) == 10
    assert not any(each.name.endswith("11.kmq") for each in bucket.asked)
    assert small.files.cache.held_bytes <= 250_000


def test_what_is_not_there_is_asked_for_once_whatever_its_name_is(proxy: FaultProxy):
    """What a client says of it has its name, and says as much of an empty object in numbers."""
    url = f"{proxy.server.new_url()}/416"
    files = open_files(url, storage_options=proxy.options())
    with pytest.raises(FileNotFoundError):
        files.bucket.get("missing", 0, 10)  # type: ignore[attr-defined]
    assert _methods(proxy) == {"GET": 1}


def test_a_hundred_files_are_deleted_by_one_request(proxy: FaultProxy):
    files = open_files(proxy.server.new_url(), storage_options=proxy.options())
    made = [f"staged/{n}" for n in range(100)]
    for path in made:
        files.stage(path, [b"x"], sync=True)
    proxy.requests.clear()
    files.remove(*made)
    assert _methods(proxy) == {"POST": 1}
    assert files.list("staged") == []
