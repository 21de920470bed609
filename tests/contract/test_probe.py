"""The race at the creation of a store, and the one writer of a bucket that fails it.

Finds a server that several writers can't share and that was believed: both would be told that
their commit is stored, and one would be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import kmq_spark as kmq
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, ArchiveRecord, ArchiveRecords
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import FencedError
from kmq_storage.format.identity import BucketFacts, Identity, decode_identity, encode_identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.bucket.commit_objects import CommitObjects
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects import lease
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.open import open_files
from kmq_storage.objects.probe import Race, judge, probe
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.memory_bucket import MemoryBucket
from tests.support.s3 import S3Server
from tests.support.storage import make_topic, send, values_of

ONE, TWO = b"1", b"2"
BAD = (Fault.IGNORE_CONDITION, Fault.CHECK_THEN_WRITE, Fault.REFUSE_501, Fault.LOST)


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(moto, hang_seconds=0.0) as started:
        yield started


def settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("bucket.single_writer", "store_files"):
        monkeypatch.setattr(f"kmq_storage.log.{module}._SETTLE", 0.05)


@pytest.mark.parametrize(
    ("outcomes", "stored", "reason"),
    [
        ((Put.CREATED, Put.TAKEN), ONE, ""),
        ((Put.UNKNOWN, Put.TAKEN), ONE, ""),
        ((Put.CREATED, Put.UNKNOWN), ONE, ""),
        ((Put.CREATED, Put.CREATED), TWO, "2 of 2 writers"),
        ((Put.CREATED, Put.TAKEN), TWO, "overwritten"),
        ((Put.CREATED, Put.TAKEN), None, "not there"),
        ((Put.UNKNOWN, Put.UNKNOWN), None, "does not answer"),
        ((Put.TAKEN, Put.TAKEN), None, "does not answer"),
    ],
)
def test_the_answers_to_a_race_are_judged_by_what_is_stored(
    outcomes: tuple[Put, ...], stored: bytes | None, reason: str
):
    found = judge(outcomes, [ONE, TWO], stored)
    assert reason in found
    assert bool(found) == bool(reason)


def test_good_servers_prove_that_they_create_a_name_once(moto: S3Server, versitygw: S3Server):
    for server in (moto, versitygw):
        files = open_files(server.new_url(), storage_options=server.options())
        identity = open_identity(files, SYSTEM, create=True)
        assert identity.bucket is not None
        assert (identity.bucket.one_writer, identity.bucket.conditional) == ("", True)
        assert {size for _, _, size in identity.bucket.races} == {256, 4 << 20}
        assert list(files.walk("probe")) == []


@pytest.mark.parametrize("fault", BAD, ids=lambda fault: fault.name)
def test_a_bad_server_is_found_out_and_takes_one_writer(
    proxy: FaultProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
):
    settle_at_once(monkeypatch)
    below = "" if fault is Fault.REFUSE_501 else "probe"  # the others only show in a race
    proxy.choose = lambda request: fault if request.conditional and below in request.path else None
    url, options = proxy.server.new_url(), proxy.options()
    with kmq.open(url, storage_options=options) as store:
        store.create_topic("t")
        with kmq.open(url, storage_options=options) as second:
            with pytest.raises(kmq.IllegalStateError, match="one writer at a time"):
                second.create_topic("u")
            assert [topic.name for topic in second.topics()] == ["t"]
        with store.producer() as producer:
            producer.send("t", b"x").result(10)
    with kmq.open(url, storage_options=options) as next_one, next_one.producer() as producer:
        producer.send("t", b"y").result(10)
        assert next_one.read("t").read_all()["value"].to_pylist() == [b"x", b"y"]


def test_a_store_works_where_no_upload_is_conditional(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    settle_at_once(monkeypatch)
    proxy.choose = lambda request: Fault.REFUSE_501 if request.conditional else None
    url, options = proxy.server.new_url(), proxy.options()
    with kmq.open(url, storage_options=options) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"x").result(10)
        store.seal()
        assert store.checkpoint()
    kmq.clone(url, f"{url}-clone", storage_options=options)
    for place in (url, f"{url}-clone"):
        with kmq.open(place, storage_options=options) as store, store.producer() as producer:
            producer.send("t", b"y").result(10)
            assert store.read("t").read_all()["value"].to_pylist() == [b"x", b"y"]


def test_a_bucket_that_answers_no_conditional_upload_is_not_asked_again(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    settle_at_once(monkeypatch)
    proxy.choose = lambda request: Fault.REFUSE_501 if request.conditional else None
    url, options = proxy.server.new_url(), proxy.options()
    with kmq.open(url, storage_options=options) as store:
        proxy.requests.clear()
        store.create_topic("t")
        assert store.checkpoint()
    assert proxy.count("PUT")
    assert not any(request.conditional for request in proxy.requests)


def test_an_archive_is_begun_where_no_upload_is_conditional(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kmq_storage.objects.bucket_files._PAUSE", 0.0)
    proxy.choose = lambda request: Fault.REFUSE_501 if request.conditional else None
    place = ArchivePlace(proxy.server.new_url(), proxy.options())
    record = ArchiveRecord(
        store_id="id", format=DELTA, group="g", checkpoint="c", topics=("t",), typed=False
    )
    for _ in range(2):
        ArchiveRecords(place).add(record)
        assert ArchiveRecords(place).newest() == record


def test_two_that_make_a_store_where_no_upload_is_conditional_make_the_same_one():
    bucket = Unconditional("memory-bucket://both")
    both = threading.Barrier(2)
    environment = replace(SYSTEM, sleep=lambda _: both.wait(10) and None)
    bucket.before_put = lambda name: name == "kmq.json" and both.wait(10)

    def make(_: int) -> Identity:
        files = BucketFiles(bucket, races=[Race(1, 2, 16)])
        return open_identity(files, environment, create=True)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(make, range(2))
    assert first == second
    assert first.bucket is not None
    assert not first.bucket.conditional


class Unconditional(MemoryBucket):
    """Answers no upload that is to create a name."""

    before_put: Callable[[str], object] = staticmethod(lambda name: None)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        return Put.UNKNOWN

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        self.before_put(name)
        super().put(name, buffers)


def test_a_name_that_is_taken_stays_as_it_is_where_no_upload_is_conditional():
    environment = replace(SYSTEM, sleep=lambda _: None)
    files = BucketFiles(Unconditional("memory-bucket://taken"), environment=environment)
    with pytest.raises(OSError, match="neither there nor accepted"):
        files.publish("name", [ONE], sync=True)  # nothing showed yet that none is answered
    files.conditional = False
    assert [files.publish("name", [body], sync=True) for body in (ONE, TWO)] == [True, False]
    assert files.read("name") == ONE


def test_a_commit_that_is_there_after_all_stays_where_no_upload_is_conditional():
    """Who gives it up for lost was told so once, by a server that may not know yet."""
    bucket = Unconditional("memory-bucket://there")
    files = BucketFiles(bucket)
    files.conditional = False
    bucket.put(paths.commit_object(7), [ONE])
    for lsn in (7, 8):
        CommitObjects(files, 0).block(lsn)
    assert files.read(paths.commit_object(7)) == ONE
    assert files.exists(paths.commit_object(8))


def test_a_writer_that_was_stopped_for_longer_than_its_lease_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("kmq_storage.log.bucket.single_writer._SETTLE", 0.0)
    monkeypatch.setattr(lease.Lease, "_beat", lambda *_: None)  # as if it was stopped
    clock = [0]
    bucket = MemoryBucket("memory-bucket://one", clock=lambda: clock[0])
    identity = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("it is bad", True, ()))
    environment = replace(SYSTEM, monotonic=lambda: clock[0] / 1e6)
    first, second = (BucketLog(BucketFiles(bucket), identity, environment) for _ in range(2))
    make_topic(first)
    clock[0] += 40_000_000
    send(second, b"second")
    with pytest.raises(FencedError):
        send(first, b"first")
    assert values_of(second) == [b"second"]


def test_the_facts_of_a_bucket_stand_in_the_identity_and_are_checked():
    facts = BucketFacts("reason", False, ((6, 8, 256),))
    identity = Identity(SYSTEM.new_uuid(), 4096, facts)
    raw = encode_identity(identity)
    assert decode_identity(raw, "x") == identity
    with pytest.raises(kmq.CorruptionError):
        decode_identity(raw.replace(b"reason", b"raison"), "x")
    assert b"bucket" not in encode_identity(Identity(SYSTEM.new_uuid()))


def test_the_races_run_on_a_bucket_in_memory():
    assert probe(MemoryBucket("memory-bucket://p"), SYSTEM, [Race(3, 8, 100)]).reason == ""
