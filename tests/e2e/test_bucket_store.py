"""A store in a bucket as its users see it, on a real server over HTTP.

Finds what only the whole shows: options that don't arrive, credentials that show up, processes
that don't see each other's commits, and requests that nobody meant to make.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import traceback

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.objects.open import open_files
from tests.support.refusing_server import refusing_server
from tests.support.s3 import S3Server


def test_records_go_from_a_producer_to_consumers_groups_and_reads(moto: S3Server):
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options) as store, store.producer() as producer:
        store.create_topic("t", partitions=2)
        for n in range(100):
            producer.send("t", b"%d" % n, key=b"%d" % n)
        producer.flush()
        with store.consumer("g", topics="t") as consumer:
            first = consumer.consume(60, timeout=10)
            consumer.commit()
    with kmq.open(url, storage_options=options, create=False) as again:
        with again.consumer("g", topics="t") as consumer:
            rest = consumer.consume(100, timeout=10)
        assert sorted(int(r.value) for r in first + rest) == list(range(100))
        assert again.read("t").read_all().num_rows == 100
        assert again.describe_group("g").members == []


@pytest.mark.parametrize("nested", [True, False])
def test_the_names_of_s3fs_are_accepted_too(moto: S3Server, nested: bool):
    given = moto.options()
    server = {"endpoint_url": given["endpoint"], "region_name": "us-east-1"}
    options = {
        "key": given["access_key_id"],
        "secret": given["secret_access_key"],
        **({"client_kwargs": server} if nested else server),
    }
    url = moto.new_url()
    with kmq.open(url, storage_options=options) as store:
        store.create_topic("t")
    with kmq.open(url, storage_options=given) as store:
        assert [topic.name for topic in store.topics()] == ["t"]


def test_a_store_that_is_not_there_is_not_found(moto: S3Server):
    with pytest.raises(kmq.NotFoundError):
        kmq.open(moto.new_url(), storage_options=moto.options(), create=False)
    with pytest.raises(kmq.NotFoundError):
        kmq.open(moto.new_url(), storage_options=moto.options(), read_only=True)


def test_members_on_different_hosts_share_a_group(moto: S3Server):
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options) as one, kmq.open(url, storage_options=options) as b:
        one.create_topic("t", partitions=2)
        with one.consumer("g", topics="t") as first:
            second = b.consumer("g", topics="t")
            assert second.assignment() == {}
            assert first.assignment() == {"t": [0]}
            assert second.assignment() == {"t": [1]}
            assert len(b.describe_group("g").members) == 2
        assert second.assignment() == {"t": [0, 1]}
        second.close()
        assert not list(one.log.files.list("locks"))


def test_what_another_host_has_just_allowed_is_taken(moto: S3Server):
    """A producer that has looked less than a second ago looks again before it refuses."""
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options) as one, kmq.open(url, storage_options=options) as b:
        one.create_topic("t", max_record_bytes=10)
        with one.producer() as producer:
            producer.send("t", b"first").result(30)
            b.alter_topic("t", max_record_bytes=100)
            assert producer.send("t", b"x" * 50).result(30).offset == 1
            b.add_partitions("t", 2)
            assert producer.send("t", b"x", partition=1).result(30).partition == 1
            b.add_partitions("t", 3)
            data = pa.table({"value": [b"x"]})
            assert producer.send_arrow("t", data, partition=2).result(30).offsets == {2: (0, 1)}
            error = producer.send("t", b"x", partition=3).exception(30)
        assert "has partitions 0 to 2, not 3" in str(error)


def test_a_silent_member_in_a_bucket_is_replaced_after_its_session_timeout(moto: S3Server):
    """Its lease is beaten no more, as if its host were gone."""
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options) as one, kmq.open(url, storage_options=options) as b:
        one.create_topic("t", partitions=2)
        dead = one.consumer("g", topics="t", session_timeout=3.0)
        assert dead._member is not None
        assert dead._watch is not None
        dead._watch.end()
        dead._member.place._lock._stop.set()  # type: ignore[union-attr]
        second = b.consumer("g", topics="t", session_timeout=3.0)
        second.poll(timeout=0)
        deadline = time.monotonic() + 120
        while second.assignment() != {"t": [0, 1]} and time.monotonic() < deadline:
            second.poll(timeout=0.2)
        assert second.assignment() == {"t": [0, 1]}
        with pytest.raises(kmq.FencedError):
            dead.commit({"t": {0: 0}})


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (401, "InvalidToken"), (500, "InternalError")]
)
def test_secrets_never_show(
    moto: S3Server, caplog: pytest.LogCaptureFixture, status: int, code: str
):
    """Neither where a server works, nor where it refuses all and tells it all in its answers."""
    token = {"session_token": "to-ken-99"}
    caplog.set_level(logging.DEBUG)
    with kmq.open(moto.new_url(), storage_options={**moto.options(), **token}) as store:
        shown = [repr(store), repr(store.log.files), repr(vars(store.log.files)), store.url]
        shown.append(store.log.files.read("kmq.json").decode())
    with refusing_server(status, code) as server:
        options = {**moto.options(server.endpoint), **token}
        with pytest.raises(kmq.UnavailableError) as caught:
            kmq.open(moto.new_url(), storage_options=options)
        shown.append(repr(pickle.dumps(caught.value)))
        with pytest.raises(OSError) as met:
            open_files(moto.new_url(), storage_options=options).read("kmq.json")
        for error in (caught.value, met.value):
            shown += traceback.format_exception(error)
    assert any("kmq.json" in request for request in server.requests)
    # A client of another test may be at work in a thread of its own, and botocore tells all.
    logged = [r.getMessage() for r in caplog.records if not r.name.startswith("botocore")]
    for name in ("access_key_id", "secret_access_key", "session_token"):
        assert not any(options[name] in text for text in [*shown, *logged])


def test_a_bucket_that_may_not_be_read_is_named_with_the_object(moto: S3Server):
    url = moto.new_url()
    with refusing_server(403, "AccessDenied") as server:
        options = moto.options(server.endpoint)
        with pytest.raises(kmq.UnavailableError, match=f"no permission for {url}/kmq.json"):
            kmq.open(url, storage_options=options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_that_it_cannot_use_its_parents_connections(moto: S3Server):
    with kmq.open(moto.new_url(), storage_options=moto.options()) as store:
        store.create_topic("t")
        child = os.fork()
        if child == 0:
            try:
                store.topics()
            except kmq.IllegalStateError as error:
                os._exit(0 if "spawn" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(store.topics()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_that_opens_a_store_after_its_parent_did_is_told_and_waits_for_nothing(
    moto: S3Server,
):
    url = moto.new_url()
    with kmq.open(url, storage_options=moto.options()):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # which ends it, should it wait for an answer
            try:
                kmq.open(url, storage_options=moto.options())
            except kmq.IllegalStateError as error:
                os._exit(0 if "spawn" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


_PRODUCE = """
import sys, kmq_spark as kmq
with kmq.open(sys.argv[1]) as store, store.producer(linger=0.0) as producer:
    for n in range(20):
        producer.send("t", f"{sys.argv[2]}-{n}".encode()).result(60)
"""


def test_processes_share_a_store_with_the_usual_environment(s3_url: str):
    with kmq.open(s3_url) as store:
        store.create_topic("t")
        code = textwrap.dedent(_PRODUCE)
        processes = [
            subprocess.Popen([sys.executable, "-c", code, s3_url, str(n)]) for n in range(3)
        ]
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        values = store.read("t").read_all()["value"].to_pylist()
    for number in range(3):
        own = [value for value in values if value.startswith(b"%d-" % number)]
        assert own == [b"%d-%d" % (number, n) for n in range(20)]
    assert len(values) == 60
