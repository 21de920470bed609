"""How producers, consumers and stores begin and end: with-blocks, exits, forks, imports.

Finds: records that are lost at an exit or doubled by a fork, handles that outlive their store, and
an import that starts something.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from tests.unit.client.stored import records, values


def _run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def _in_child(work: Callable[[], object]) -> int:
    """Run this in a forked child; its exit code, 0 when nothing was raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def local(tmp_path: Path) -> Iterator[kmq.Store]:
    """A store in a folder with topic `t`."""
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
        yield store


def test_leaving_a_with_block_flushes(store: kmq.Store):
    store.create_topic("t")
    with store.producer(linger=30.0) as producer:
        sent = [producer.send("t", b"%d" % number) for number in range(100)]
    assert all(future.done() for future in sent)
    assert len(values(store, "t")) == 100


def test_leaving_a_with_block_by_an_exception_flushes_too(store: kmq.Store):
    store.create_topic("t")

    def fail() -> None:
        with store.producer(linger=30.0) as producer:
            producer.send("t", b"kept")
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        fail()
    assert values(store, "t") == [b"kept"]


def test_leaving_the_store_flushes_its_producers(store_url: str):
    with kmq.open(store_url) as store:
        store.create_topic("t")
        sent = store.producer(linger=30.0).send("t", b"v")
    assert sent.result(0).offset == 0
    with kmq.open(store_url) as store:
        assert values(store, "t") == [b"v"]


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise RuntimeError('failed')"])
def test_the_end_of_the_interpreter_flushes(local: kmq.Store, end: str):
    script = f"""
        import sys, kmq_spark as kmq
        producer = kmq.open(sys.argv[1]).producer(linger=30.0)
        for number in range(100):
            producer.send("t", b"%d" % number)
        {end}
    """
    done = _run(script, local.url)
    assert len(values(local, "t")) == 100, done.stderr


def test_a_producer_for_which_nothing_waits_is_still_one(store: kmq.Store):
    with store.producer() as producer, store.producer() as another:
        assert len(producer) == 0
        assert (producer or another) is producer
        assert aio.Producer(producer)


def test_a_closed_producer_says_so_at_once_and_closes_again_in_peace(store: kmq.Store):
    import pyarrow as pa

    store.create_topic("t")
    producer = store.producer()
    producer.close()
    producer.close()
    for call in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send_batch("t", [b"v"]),
        lambda: producer.send_batch("t", []),
        lambda: producer.send_arrow("t", pa.table({"value": [b"v"]})),
    ):
        with pytest.raises(kmq.ClosedError):
            call()
    assert producer.flush() == 0
    assert len(producer) == 0


def test_close_may_be_called_from_any_thread_while_others_send(store: kmq.Store):
    store.create_topic("t")
    producer = store.producer()
    sent: list[object] = []

    def work() -> None:
        try:
            while True:
                sent.append(producer.send("t", b"v"))
        except kmq.ClosedError:
            pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(sent) < 100:
        time.sleep(0.001)
    producer.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(records(store, "t")) == len(sent)


def test_flush_and_close_wait_until_all_is_durable_or_say_how_many_are_not(store: kmq.Store):
    store.create_topic("t")
    go_on = threading.Event()

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        go_on.wait(30)
        return 0

    with store.producer(partitioner=partitioner) as producer:
        for _ in range(5):
            producer.send("t", b"v", b"k")
        assert len(producer) == 5
        assert producer.flush(0) == 5
        assert producer.flush(timeout=0.05) == 5
        with pytest.raises(kmq.KmqTimeoutError, match="5 records"):
            producer.close(timeout=0.05)
        go_on.set()
        assert producer.flush() == 0
        assert len(producer) == 0
    assert len(values(store, "t")) == 5


def test_a_limit_that_no_clock_reaches_is_as_good_as_none(store: kmq.Store):
    store.create_topic("t")
    for limit in (1e10, 1e308):
        with store.producer() as producer:
            producer.send("t", b"v")
            assert producer.flush(limit) == 0
            producer.close(timeout=limit)
    assert len(values(store, "t")) == 2


def test_closing_without_waiting_is_no_error_when_all_is_durable(store: kmq.Store):
    store.create_topic("t")
    for _ in range(20):  # its thread may or may not have ended by then
        producer = store.producer()
        producer.send("t", b"v").result()
        producer.close(timeout=0)
        with pytest.raises(kmq.ClosedError):
            producer.send("t", b"v")
        producer.close()


def test_a_forked_producer_starts_empty_and_pending_records_stay_the_parents(local: kmq.Store):
    producer = local.producer(linger=30.0)
    waiting = producer.send("t", b"parent")

    def work() -> None:
        assert len(producer) == 0
        producer.send("t", b"child").result(20)
        producer.send("t", b"child too")
        producer.close()

    assert _in_child(work) == 0
    assert not waiting.done()
    producer.close()
    assert waiting.exception() is None
    assert values(local, "t") == [b"child", b"child too", b"parent"]


def test_who_waits_in_a_child_for_a_send_of_its_parent_is_told_so(local: kmq.Store):
    producer = local.producer(linger=30.0)
    waiting, transaction = producer.send("t", b"parent"), local.producer()
    transaction.begin_transaction()
    inside = transaction.send("t", b"in a transaction")
    waits: list[Callable[[Future[Any]], object]] = [
        lambda future: future.result(),
        lambda future: future.exception(timeout=5),
        lambda future: wait([future]),
        lambda future: wait([future]),  # again: the first time changed nothing
        lambda future: list(as_completed([future])),
        lambda future: future.add_done_callback(print),
    ]

    def work() -> None:
        for future in (waiting, inside):
            for each in waits:
                with pytest.raises(kmq.IllegalStateError, match="its parent stores it"):
                    each(future)

    assert _in_child(work) == 0
    producer.close()
    assert waiting.result().offset == 0
    transaction.commit_transaction()
    transaction.close()
    assert inside.result().offset == 1

    def look() -> None:
        assert waiting.result().offset == 0  # what was done before the fork is known

    assert _in_child(look) == 0


def test_a_forked_store_and_consumer_go_on_by_themselves(local: kmq.Store):
    with local.producer() as producer:
        producer.send_batch("t", [b"0", b"1", b"2"]).result(10)
    consumer = local.consumer(topics=["t"])
    assert consumer.poll().value == b"0"  # type: ignore[union-attr]

    def work() -> None:
        assert [record.value for record in consumer.consume(timeout=0)] == [b"1", b"2"]
        local.create_topic("from-the-child")
        with local.consumer("g", topics=["t"]) as member:
            member.poll()
            member.commit()

    assert _in_child(work) == 0
    assert consumer.poll().value == b"1"  # type: ignore[union-attr]
    assert [topic.name for topic in local.topics()] == ["from-the-child", "t"]
    assert local.describe_group("g").committed == {"t": {0: 1}}
    local.close()


def test_a_forked_group_member_stays_the_parents(local: kmq.Store):
    with local.producer() as producer:
        producer.send_batch("t", [b"0", b"1", b"2"]).result(10)
    member = local.consumer("g", topics=["t"])
    member.poll()

    def work() -> None:
        for call in (member.poll, member.consume, member.commit, member.position):
            with pytest.raises(kmq.IllegalStateError, match="parent"):
                call()
        with local.consumer("g", topics=["t"]) as other:
            assert other.assignment() == {}  # the parent has it
        member.close()

    assert _in_child(work) == 0
    member.commit()
    assert member.poll().value == b"1"  # type: ignore[union-attr]
    assert local.describe_group("g").committed == {"t": {0: 1}}
    local.close()


def test_a_fork_while_threads_send_leaves_both_alive(local: kmq.Store):
    producer = local.producer()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            producer.send("t", b"parent")
            time.sleep(0.0002)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert _in_child(lambda: producer.send("t", b"child").result(20)) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    producer.close()
    found = values(local, "t")
    assert found.count(b"child") == 5
    local.close()


def test_what_needs_spark_says_how_to_install_it():
    code = "import sys; sys.modules['pyspark'] = None; import kmq_spark; kmq_spark.register"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "ModuleNotFoundError: kmq_spark.register needs Spark: pip install" in ended.stderr


def test_importing_starts_nothing_and_loads_no_pyspark(tmp_path: Path):
    script = """
        import sys, threading, os
        import kmq_spark
        assert not [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]
        assert threading.active_count() == 1, threading.enumerate()
        assert os.listdir(".") == [], os.listdir(".")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_importing_loads_only_what_opening_a_store_needs():
    code = "import sys, kmq_spark; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {"pyspark", "obstore", "fsspec", "pandas", "asyncio", "numpy.typing", "pyarrow.compute"}
    later = {f"kmq_storage.{name}" for name in ("integrity.verify", "maintenance.maintain")}
    later |= {"kmq_storage.log.bucket.bucket_log", "kmq_spark.datasource", "kmq_spark.cli"}
    assert loaded & (heavy | later) == set()
