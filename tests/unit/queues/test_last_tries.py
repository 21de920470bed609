"""Records that are held ahead when a program ends: none is delayed, or a dead letter, by that."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from tests.support.clock import Clock
from tests.support.processes import exit_codes, start_python

#: More than it takes to be fast, and to hold some ahead.
FAST, RECORDS = 40, 1_000

_PROGRAM = """
import os, sys
import kmq_spark as kmq
queue = kmq.open(sys.argv[1], durability="os").queue("q")
for _ in range(int(sys.argv[3])):
    (held,) = queue.receive()
    held.ack()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[2] == "raise":
    raise ValueError
if sys.argv[2] == "fork":
    child = os.fork()
    os.waitpid(child, 0) if child else sys.exit()
    (held,) = queue.receive()
    held.ack()
"""


def _ends(url: Path, how: str, count: int = FAST) -> int:
    (code,) = exit_codes([start_python(_PROGRAM, str(url), how, str(count))])
    return code


def _fill(store: kmq.Store, **settings: float) -> None:
    store.create_queue("q", **settings)
    with store.producer() as producer:
        for n in range(RECORDS):
            producer.send_to_queue("q", b"%d" % n)


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("raise", 1), ("fork", 0)])
def test_a_program_that_ends_gives_back_what_it_held_ahead(tmp_path: Path, how: str, code: int):
    with kmq.open(tmp_path / "store", durability="os") as store:
        _fill(store, lock_timeout=3600)
        assert _ends(tmp_path / "store", how) == code
        stats, done = store.queue("q").stats(), FAST + (how == "fork")
    assert (stats.locked, stats.acked, stats.delivered) == (0, done, done)
    assert stats.ready == RECORDS - done


@pytest.mark.parametrize("most", [1, 2])
def test_what_nobody_got_is_no_dead_letter_however_often_receivers_are_killed(
    tmp_path: Path, most: int
):
    takes = (300, 60, 20)
    clock, url = Clock(), tmp_path / "store"
    with open_store(url, durability="os", environment=clock.environment) as store:
        _fill(store, lock_timeout=3600, max_deliveries=most)
        queue = store.queue("q", prefetch=1)
        for count in takes:  # of what the one before held ahead, some
            assert _ends(url, "kill", count) == -signal.SIGKILL
            clock.pass_seconds(7200)
            store.create_topic(f"t{count}")  # the log's time is the next receiver's
        left = {int(each.value) for each in queue.receive(RECORDS)}
        stats = queue.stats()
    assert (stats.dead, stats.acked) == (0, sum(takes))
    assert len(left) == RECORDS - stats.acked
