"""The asyncio twins: the same results as the plain ones, and an event loop that never waits.

Finds: sends that lose their order, a loop that is blocked, a cancelled wait that loses a record.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.errors import InvalidRequestError
from tests.unit.client.stored import values


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_the_whole_path_reads_as_the_plain_one(store_url: str):
    async def work() -> None:
        async with await aio.open(store_url) as store:
            topic = await store.create_topic("t", partitions=2)
            assert topic.partitions == 2
            async with store.producer() as producer:
                place = await producer.send("t", b"1", key=b"k", partition=1)
                assert (place.partition, place.offset) == (1, 0)
                assert len(await producer.send_batch("t", [b"2", b"3"], partition=1)) == 2
                rows = pa.table({"value": [b"4"]})
                assert (await producer.send_arrow("t", rows, partition=1)).offsets == {1: (3, 4)}
                assert await producer.flush() == 0
            async with store.consumer("g", topics=["t"]) as consumer:
                first = await consumer.poll()
                assert (first.value, first.offset) == (b"1", 0)
                assert [record.value for record in await consumer.consume(1)] == [b"2"]
                table = await consumer.consume_arrow()
                assert table["value"].to_pylist() == [b"3", b"4"]
                assert await consumer.poll() is None
                assert await consumer.consume(timeout=0.05) == []
                await consumer.commit()
                assert (await consumer.position())["t"][1] == 4
            assert (await store.describe_group("g")).committed["t"][1] == 4
            assert (await store.offsets("t"))[1] == (0, 4)

    _run(work())


def test_sends_at_once_keep_the_order_of_the_calls(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            places = await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(200)))
            assert [place.offset for place in places] == list(range(200))

    _run(work())


def test_errors_are_raised_where_they_are_awaited(store_url: str):
    async def work() -> None:
        with pytest.raises(kmq.InvalidRequestError):
            await aio.open(store_url, durability="none")
        async with aio.open(store_url) as store:
            with pytest.raises(kmq.NotFoundError):
                await store.describe_topic("missing")
            with pytest.raises(kmq.NotFoundError):
                await store.consumer(topics=["missing"])
            producer = await store.producer()
            with pytest.raises(kmq.NotFoundError):
                await producer.send("missing", b"v")
            with pytest.raises(kmq.InvalidRequestError):
                await producer.send("t", 5)
            await producer.close()
            await producer.close()
            with pytest.raises(kmq.ClosedError):
                await producer.send("t", b"v")

    _run(work())


def test_iteration_leaves_the_loop_free_and_ends_when_closed(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            consumer = await twin.consumer(topics=["t"])
            found = []

            async def read() -> None:
                found.extend([record.value async for record in consumer])

            reading = asyncio.create_task(read())
            for number in range(5):
                await producer.send("t", b"%d" % number)
            while sum((await consumer.lag())["t"].values()):
                await asyncio.sleep(0.01)
            await consumer.close()
            await reading
            assert found == [b"%d" % number for number in range(5)]

    _run(work())


def test_a_cancelled_wait_loses_no_record(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.consumer(topics=["t"]) as consumer:
            for wait in (consumer.poll, consumer.consume, consumer.consume_arrow):
                waiting = asyncio.create_task(wait(timeout=None))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with store.producer() as producer:
                    await asyncio.to_thread(producer.send("t", b"v").result, 10)
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert (await consumer.poll(timeout=10)).value == b"v"
                assert await consumer.poll() is None

    _run(work())


@pytest.mark.parametrize("wait", ["poll", "consume", "consume_arrow"])
def test_what_a_cancelled_call_took_comes_again_and_is_never_committed(store_url: str, wait: str):
    async def work() -> None:
        async with aio.open(store_url) as twin:
            await twin.create_topic("t")
            async with twin.producer() as producer:
                await producer.send_batch("t", [b"0", b"1", b"2"])
            consumer = await twin.consumer("g", topics=["t"], auto_commit=True)

            async def take_and_be_cancelled() -> None:
                waiting = asyncio.create_task(getattr(consumer, wait)())
                await asyncio.sleep(0)
                while not consumer._thread._work_queue.empty():
                    await asyncio.sleep(0)
                consumer._thread.submit(int).result()  # it has taken, and nobody knows yet
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting

            await take_and_be_cancelled()
            assert (await consumer.poll()).value == b"0"
            await take_and_be_cancelled()
            await consumer.close()
            assert (await twin.describe_group("g")).committed == {"t": {0: 1}}

    _run(work())


def test_a_call_beside_one_that_is_cancelled_waits_for_its_turn(store: kmq.Store, store_url: str):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % number for number in range(100)])

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.consumer("g", topics=["t"]) as consumer:
            found: list[bytes] = []

            async def read() -> None:
                found.extend([each.value for each in await consumer.consume(3)])

            while len(found) < 100:
                tasks = [asyncio.create_task(read()) for _ in range(4)]
                for turns, task in enumerate(tasks[::2]):
                    for _ in range(turns * 3):
                        await asyncio.sleep(0)
                    task.cancel()
                await asyncio.wait(tasks)
            assert sorted(found, key=int) == [b"%d" % number for number in range(100)]
            assert await consumer.position() == {"t": {0: 100}}

    _run(work())


def test_a_cancelled_close_still_closes(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as twin:
            await twin.create_topic("t")
            consumer = await twin.consumer("g", topics=["t"])
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await consumer.close()
            while (await twin.describe_group("g")).members:
                await asyncio.sleep(0.01)
            with pytest.raises(kmq.ClosedError):
                await consumer.poll()

    _run(work())


def test_reads_and_commits_are_iterated_beside_the_event_loop(store: kmq.Store, store_url: str):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"v"] * 10)
    loop_thread = threading.get_ident()
    threads = set()

    async def work() -> None:
        async with aio.open(store_url) as twin:
            original = twin._handle.commits

            def commits(start: int | None) -> Iterator[kmq.Commit]:
                for commit in original(start):
                    threads.add(threading.get_ident())
                    yield commit

            rows = [b.num_rows async for b in twin.read("t", columns=["value"], batch_rows=4)]
            assert sum(rows) == 10
            assert len(rows) == 3
            twin._handle.commits = commits
            lsns = [commit.lsn async for commit in twin.commits(2)]
            assert lsns == [commit.lsn for commit in store.commits(2)]
            with pytest.raises(kmq.NotFoundError):
                [batch async for batch in twin.read("missing")]

    _run(work())
    assert threads
    assert loop_thread not in threads


def test_an_exception_in_the_block_is_seen_by_auto_commit(store: kmq.Store, store_url: str):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"v"] * 5)

    async def work() -> None:
        async with (
            aio.open(store_url) as twin,
            twin.consumer("g", topics=["t"], auto_commit=True) as consumer,
        ):
            await consumer.consume(2)
            await consumer.consume(2)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        _run(work())
    assert store.describe_group("g").committed == {"t": {0: 2}}


def test_a_transaction_of_the_twin_commits_and_aborts(store: kmq.Store, store_url: str):
    for topic in "ab":
        store.create_topic(topic)
    store.create_queue("q")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            await producer.send_batch("a", [b"1", b"2"])
            consumer = await twin.consumer("g", topics=["a"])
            records = await consumer.consume()
            async with producer.transaction() as tx:
                sent = [await tx.send("b", record.value) for record in records]
                batch, rows = await tx.send_batch("b", [b"3"]), pa.table({"value": [b"4"]})
                arrow = await tx.send_arrow("b", rows)
                await tx.commit_offsets(consumer)
                queued = await tx.send_to_queue("q", b"job")
                jobs = await tx.send_arrow_to_queue("q", rows)
                with pytest.raises(kmq.IllegalStateError, match="begin_transaction returns it"):
                    await producer.send("b", b"this would wait for the commit")
            assert [(await each).offset for each in sent] == [0, 1]
            assert (await batch)[0].offset == 2
            assert (await arrow).offsets == {0: (3, 4)}
            assert (await queued).topic is None
            assert (await jobs).offsets == {0: (1, 2)}
            async with twin.queue("q") as queue, producer.transaction() as tx:
                await tx.ack(await queue.receive())
            assert (await (await twin.queue("q")).stats()).acked == 1
            assert await consumer.committed() == {"a": {0: 2}}
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx:
                    lost = await tx.send("b", b"5")
                    raise ZeroDivisionError
            with pytest.raises(kmq.TransactionAbortedError):
                await lost
            tx = await producer.begin_transaction()
            await tx.send("b", b"5")
            await producer.send_offsets_to_transaction({"a": {0: 1}}, consumer)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
            await consumer.close()

    _run(work())
    assert values(store, "b") == [b"1", b"2", b"3", b"4", b"5"]


def test_a_task_that_is_cancelled_in_a_transaction_leaves_nothing(store: kmq.Store, store_url: str):
    store.create_topic("a")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            inside = asyncio.Event()

            async def send() -> None:
                async with producer.transaction() as tx:
                    await tx.send("a", b"lost")
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(send())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction() as tx:
                await tx.send("a", b"kept")

    _run(work())
    assert values(store, "a") == [b"kept"]


def test_a_queue_is_received_from_and_answered(store_url: str):
    async def play() -> None:
        async with aio.open(store_url) as store, store.producer() as producer:
            await store.create_queue("q")
            for n in range(3):
                await producer.send_to_queue("q", b"%d" % n)
            async with store.queue("q") as queue:
                assert queue.name == "q"
                one, two = await queue.receive(2)
                assert (one.value, one.delivery_count) == (b"0", 1)
                await one.ack()
                await two.extend(60)
                await two.nack(0)
                await queue.ack(await queue.receive_arrow())
                assert (await queue.stats()).acked == 3

    _run(play())


def test_what_a_cancelled_task_received_is_free_again(store_url: str):
    async def play() -> None:
        async with aio.open(store_url) as store, store.producer() as producer:
            await store.create_queue("q")
            async with store.queue("q") as queue:
                waiting = asyncio.create_task(queue.receive(timeout=None))
                while not queue._thread._work_queue.empty() or waiting.done():
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiting.cancel()
                await producer.send_to_queue("q", b"1")
                (held,) = await queue.receive(timeout=None)
                assert held.delivery_count == 1

    _run(play())


def test_keyed_queues_are_put_to_and_read_from(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            assert queues.name == "inbox"
            puts = [queues.put("a", b"1"), queues.put("b", b"2"), queues.put("a", b"3")]
            assert await asyncio.gather(*puts) == [0, 0, 1]
            assert await queues.put_batch(["a", "c"], [b"4", b"5"]) == [2, 0]
            assert await queues.put_arrow(pa.table({"queue": ["c"], "value": ["6"]})) == [1]
            assert await queues.get("a", 1, 9) == [b"3", b"4"]
            assert (await queues.get_arrow("c", 0, 9))["value"].to_pylist() == [b"5", b"6"]
            assert (await queues.get_many(["b", "c"], 0, 1))["value"].to_pylist() == [b"2", b"5"]
            assert (await queues.size("a"), await queues.names()) == (3, ["a", "b", "c"])
            await queues.delete("b", "c")
            assert await queues.names() == ["a"]
            with pytest.raises(InvalidRequestError):
                await queues.put("", b"x")
            await queues.flush()

    _run(work())


def test_a_put_whose_task_is_cancelled_is_stored_or_not_and_the_next_goes_on(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            put = asyncio.create_task(queues.put("a", b"1"))
            await asyncio.sleep(0)
            put.cancel()
            with suppress(asyncio.CancelledError):
                await put
            index = await queues.put("a", b"2")
            assert (await queues.get("a", 0, 9))[index:] == [b"2"]

    _run(work())
