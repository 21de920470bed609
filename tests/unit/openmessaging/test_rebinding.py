"""Queues that are bound again, as many programs do when they begin, and read by messages then."""

from __future__ import annotations

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from tests.unit.openmessaging.received import attached, bodies


def test_who_comes_after_a_topic_was_bound_again_reads_it_from_where_it_was_bound_first(
    settings: oms.KeyValue,
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.create_topic("t")
        store.create_queue("q")
        sender.send("t", b"before").result()
        store.bind_queue("q", ["t"], start="latest")
        for number in range(4):
            sender.send("t", b"%d" % number, properties={"n": number}).result()
        queue = store.queue("q", prefetch=1)
        queue.ack(queue.receive(9))  # and has nothing to look at any more
        store.bind_queue("q", ["t"])
        assert bodies(attached(settings)) == [b"0", b"1", b"2", b"3"]
