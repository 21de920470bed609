"""Groups of queries whose process is not dead yet, though Spark said that they have ended.

Finds: calls that are refused, now and then, because they come some milliseconds too early.
"""

from __future__ import annotations

import threading

import pytest

import kmq_spark as kmq
from kmq_storage.exclusive import ExclusiveMembership


@pytest.mark.parametrize("call", ["set", "delete", "copy", "join"])
def test_a_group_is_free_for_who_comes_while_the_query_that_ended_is_dying(
    store: kmq.Store, call: str
):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"x").result()
    store.set_group_offsets("other", {"t": {0: 1}})
    dying = ExclusiveMembership(store.log, "g", "query")
    death = threading.Timer(0.1, dying.leave)
    death.start()
    {
        "set": lambda: store.set_group_offsets("g", {"t": {0: 1}}),
        "delete": lambda: store.delete_group("g"),
        "copy": lambda: store.copy_group("other", "g"),
        "join": lambda: store.consumer("g", topics=["t"]).close(),
    }[call]()
    death.join()
