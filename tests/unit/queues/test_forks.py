"""What a forked child may do with what its parent has received: nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
import pytest

import kmq_spark as kmq


def _send(store: kmq.Store, queue: str, *values: bytes) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send_to_queue(queue, value)


def _values(records: Sequence[kmq.Delivery]) -> list[bytes]:
    return [each.value for each in records]


def test_a_forked_child_does_not_answer_for_its_parent(tmp_path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_queue("q")
        _send(store, "q", b"1", b"2")
        queue = store.queue("q")
        (held,) = queue.receive()
        child = os.fork()
        if not child:
            code = 1
            try:
                held.ack()
            except kmq.IllegalStateError:
                code = 0 if _values(queue.receive()) == [b"2"] else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        held.ack()
        assert queue.stats().acked == 1


@pytest.mark.parametrize("way", ["queue", "another handle", "transaction"])
def test_a_forked_child_does_not_answer_for_rows_of_its_parent(tmp_path, way: str):
    with kmq.open(tmp_path / "store", durability="os") as store, store.producer() as producer:
        store.create_queue("q")
        _send(store, "q", b"1", b"2")
        queue = store.queue("q")
        table = queue.receive_arrow()
        child = os.fork()
        if not child:
            code = 1
            try:
                if way == "transaction":
                    with producer.transaction() as tx:
                        tx.ack(table)
                else:
                    (queue if way == "queue" else store.queue("q")).ack(table)
            except kmq.IllegalStateError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        queue.ack(table)
        assert queue.stats().acked == 2


def test_rows_that_a_forked_child_received_may_be_acknowledged_by_its_parent(tmp_path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_queue("q")
        _send(store, "q", b"1", b"2")
        queue = store.queue("q")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            with os.fdopen(writing, "wb") as file:
                table = queue.receive_arrow()
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            table = pa.ipc.open_stream(file.read()).read_all()
        assert os.waitpid(child, 0)[1] == 0
        queue.ack(table)
        assert queue.stats().acked == 2
