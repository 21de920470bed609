"""The asyncio twin of the orderly consumer: its listener runs in the caller's loop.

Finds: listeners in another thread than the loop's, partitions that wait for each other's awaits,
and closes that hang.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from tests.unit.orderly.listening import SUCCESS, SUSPEND, fill


def test_an_awaited_listener_gets_each_partition_in_order(tmp_path: Path):
    heard: list[tuple[int, int]] = []

    async def main() -> None:
        both = asyncio.Barrier(2)
        ended = asyncio.Event()
        loops_thread = threading.get_ident()

        async def listen(
            records: list[kmq.Record], context: kmq.OrderlyContext
        ) -> kmq.OrderlyStatus:
            assert threading.get_ident() == loops_thread
            await both.wait()  # the other partition's listener is inside, too
            if context.partition == 0 and context.reconsume_times == (0,):
                return SUSPEND
            heard.append((context.partition, records[0].offset))
            if len(heard) == 6:
                ended.set()
            return SUCCESS

        async with (
            aio.open(tmp_path / "s") as store,
            store.orderly_consumer("g", ["t"], listen, suspend_current_queue_time=0.01) as consumer,
        ):
            assert set(consumer.process_queues()["t"]) == {0, 1}
            await asyncio.wait_for(ended.wait(), 30)
            await consumer.close()
            await consumer.join()
            found = await store.describe_group("g")
            assert found.committed == {"t": {0: 2, 1: 4}}

    with kmq.open(tmp_path / "s") as store:
        store.create_topic("t", partitions=2)
        fill(store, {0: 2, 1: 4})
    asyncio.run(main())
    assert [offset for partition, offset in heard if partition == 0] == [0, 1]
    assert [offset for partition, offset in heard if partition == 1] == [0, 1, 2, 3]


def test_a_listener_may_close_its_consumer_which_does_not_wait_for_it(tmp_path: Path):
    async def main() -> None:
        opened: list[aio.OrderlyConsumer] = []

        async def listen(records: list[kmq.Record], _: kmq.OrderlyContext) -> kmq.OrderlyStatus:
            if records[0].offset == 1:
                await opened[0].close()
            return SUCCESS

        async with aio.open(tmp_path / "s") as store:
            await store.create_topic("t")
            opened.append(await store.orderly_consumer("g", ["t"], listen))
            async with store.producer() as producer:
                await producer.send_batch("t", [b"0", b"1"])
            await opened[0].join(30)
            assert (await store.describe_group("g")).committed == {"t": {0: 2}}

    asyncio.run(main())


def test_a_listener_that_awaits_nothing_may_be_a_plain_function(tmp_path: Path):
    async def main() -> None:
        ended = asyncio.Event()

        def listen(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
            ended.set()
            return SUCCESS

        async with aio.open(tmp_path / "s") as store:
            async with store.orderly_consumer("g", ["t"], listen):
                await asyncio.wait_for(ended.wait(), 30)
            assert (await store.describe_group("g")).committed == {"t": {0: 1}}

    with kmq.open(tmp_path / "s") as store:
        store.create_topic("t")
        fill(store, {0: 1})
    asyncio.run(main())


def test_a_listener_that_can_not_be_called_is_refused_as_by_the_twin(tmp_path: Path):
    async def main() -> None:
        async with aio.open(tmp_path / "s") as store:
            await store.create_topic("t")
            for bad in (5, None):
                with pytest.raises(kmq.InvalidRequestError, match=f"be callable, not {bad}"):
                    await store.orderly_consumer("g", ["t"], bad)  # type: ignore[arg-type]

    asyncio.run(main())
