"""One queue and many processes that receive from it: killed, stopped and continued.

Finds: a record that two hold at a time, one that comes again after its answer was accepted, one
that is lost with the process that held it, and an answer that is accepted too late. Of the records
of a key, with order "strict" of all: two in different hands, and one that comes too early.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.e2e.queue_workers import QUEUE, Receivers

pytestmark = pytest.mark.e2e

LOCK, RECORDS = 1.0, 450
#: How many keys the records of a queue have by turns, so that these come in order.
KEYS = {"none": 10**9, "key": 30, "strict": 1}


class Shop:
    """A store with a queue, and what was sent to it."""

    def __init__(self, url: str, order: str, stack: ExitStack) -> None:
        self.store = stack.enter_context(kmq.open(url, durability="os"))
        self.store.create_topic("t")
        self.store.create_queue(
            QUEUE, topics=["t"], order=order, lock_timeout=LOCK, max_deliveries=None
        )
        self._keys = KEYS[order]
        self._producer = stack.enter_context(self.store.producer(linger=0.001))
        self.sent = 0

    def send(self) -> None:
        for n in range(self.sent, self.sent + RECORDS):
            self._producer.send("t", b"%d" % n, key=b"%d" % (n % self._keys))
        self._producer.flush()
        self.sent += RECORDS

    def is_done(self) -> bool:
        (info,) = self.store.queues()
        return info.stats.acked == self.sent


def _check_history(receivers: Receivers) -> None:
    for (topic, offset), times in receivers.had.items():
        times.sort()
        assert [had.delivery for had in times] == sorted({had.delivery for had in times})
        for had, following in pairwise(times):
            answer = receivers.answered.get((topic, offset, had.delivery))
            assert answer != "done", f"{topic}-{offset} was finished and came again"
            assert answer == "failed" or following.begin >= had.end


def _check_order(receivers: Receivers, keys: int) -> None:
    """Of each key one receiver at a time has records: the first ones that are not finished.

    A lock's end tells when its record was acquired, by the log's time, whatever stops a process.
    """
    acquired: dict[int, dict[float, list[tuple[int, float]]]] = defaultdict(dict)
    for (topic, offset), times in receivers.had.items():
        for had in times:
            kept = receivers.tried.get((topic, offset, had.delivery), had.begin)
            rows = acquired[offset % keys].setdefault(had.end, [])
            rows.append((offset, min(kept, had.end)))
    for rounds in acquired.values():
        for (_, before), (end, rows) in pairwise(sorted(rounds.items())):
            begin = round(end - LOCK, 6)
            assert begin >= max(kept for _, kept in before), f"two had records, one {rows}"
        later: set[int] = set()
        for _, rows in sorted(rounds.items(), reverse=True):
            offsets = {offset for offset, _ in rows}
            assert max(offsets) < min(later - offsets, default=inf), "an earlier one came later"
            later |= offsets


@pytest.mark.parametrize("order", KEYS)
def test_each_record_is_held_by_one_until_it_is_answered_or_its_lock_ends(
    tmp_path: Path, order: str
):
    url = str(tmp_path / "store")
    with ExitStack() as stack:
        shop = Shop(url, order, stack)
        receivers = Receivers(stack, url)
        for seed in range(6):
            receivers.start(seed)
        shop.send()
        receivers.hear(lambda: len(receivers.answered) > 100)
        stopping = receivers.pipes[3]
        for victim in (0, 1, 6, 7, 8):  # some with records that they hold ahead
            receivers.processes[victim].kill()
            receivers.start(victim + 7)
            answered = len(receivers.answered) + 30
            receivers.hear(lambda answered=answered: len(receivers.answered) > answered)
        stopping.send("stopped")
        while not receivers.stopped:  # on a busy machine the others may take all that is sent
            shop.send()
            receivers.hear(lambda: receivers.stopped > 0 or shop.is_done())
        receivers.hear(shop.is_done)
        os.kill(receivers.processes[3].pid, signal.SIGCONT)
        receivers.hear(lambda: receivers.late > 0)
        assert shop.is_done()
        for process in receivers.processes:
            process.kill()
        receivers.hear(lambda: not receivers.pipes)
    assert len(receivers.had) == shop.sent
    _check_history(receivers)
    _check_order(receivers, KEYS[order])
