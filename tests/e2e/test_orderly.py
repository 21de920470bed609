"""Orderly consumers in several processes, of which some are killed or stopped.

Finds: two listeners in one partition, records out of order, lost ones, and such that come again
though nobody was killed, and one that goes on with partitions it lost while it was stopped.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from tests.e2e import workers
from tests.e2e.orderly_workers import (
    TOPIC,
    Diary,
    check_order,
    consume_orderly,
    consume_with_short_sessions,
)

pytestmark = pytest.mark.e2e

PARTITIONS, RECORDS = 6, 150


def _until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 150
    while not so():
        assert time.monotonic() < deadline, "nothing more happens"
        time.sleep(0.1)


class Shop:
    """A store, its topic, and processes that consume it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._url, self._stack = str(folder / "store"), stack
        self.diary = Diary(folder / "diary")
        self.diary.path.touch()
        self.store = stack.enter_context(kmq.open(self._url, durability="os"))
        self.store.create_topic(TOPIC, partitions=PARTITIONS)
        self.sent = 0

    def send(self) -> None:
        with self.store.producer() as producer:
            for partition in range(PARTITIONS):
                producer.send_batch(TOPIC, [b"v"] * RECORDS, partition=partition)
        self.sent += RECORDS

    def start(self, work: Any = consume_orderly) -> tuple[Any, Any]:
        running = workers.running(work, self._url, str(self.diary.path))
        process, pipe = self._stack.enter_context(running)
        assert pipe.recv() == "started"
        return process, pipe

    def committed(self) -> dict[int, int]:
        return dict(self.store.describe_group("g").committed[TOPIC])

    def members(self) -> int:
        return len(self.store.describe_group("g").members)

    def stop(self, process: Any) -> None:
        """Stop a process while it doesn't hold the append lock, with which it would stop all."""
        lock = self.store.log.files.open_lock(paths.APPEND_LOCK)
        _until(lock.try_acquire)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.1)  # for all of its threads to be stopped
        lock.release()

    def wait_for(self, share: float) -> None:
        """Until so much of what was sent was done with."""
        _until(lambda: len(self.diary.done()) >= share * self.sent * PARTITIONS)

    def end(self, members: list[tuple[Any, Any]]) -> None:
        for _, pipe in members:
            pipe.send("stop")
        for process, _ in members:
            process.join(60)
        committed = self.store.describe_group("g").committed
        assert committed == {TOPIC: dict.fromkeys(range(PARTITIONS), self.sent)}


def test_members_that_come_and_go_keep_each_partitions_order_and_nothing_comes_twice(
    tmp_path: Path,
):
    with ExitStack() as stack:
        shop = Shop(tmp_path, stack)
        members = [shop.start(), shop.start()]
        shop.send()
        shop.wait_for(0.2)
        members.append(shop.start())
        shop.wait_for(0.5)
        leaver, pipe = members.pop(0)
        pipe.send("stop")
        shop.send()
        leaver.join(60)
        shop.wait_for(1.0)
        shop.end(members)
        assert {check_order(events, set()) for events in shop.diary.events().values()} == {0}


def test_members_that_are_killed_break_no_order_and_lose_nothing(tmp_path: Path):
    killed = set()
    with ExitStack() as stack:
        shop = Shop(tmp_path, stack)
        members = [shop.start() for _ in range(3)]
        shop.send()
        for share in (0.2, 0.5, 0.8):
            shop.wait_for(share)
            process, _ = members.pop(0)
            os.kill(process.pid, signal.SIGKILL)
            killed.add(process.pid)
            members.append(shop.start())
        shop.send()
        shop.wait_for(1.0)
        shop.end(members)
        again = sum(check_order(events, killed) for events in shop.diary.events().values())
        print(f"\n{again} times a new owner began before where the killed one was")


def test_a_member_that_was_stopped_beyond_its_session_goes_on_with_nothing_of_others(
    tmp_path: Path,
):
    with ExitStack() as stack:
        shop = Shop(tmp_path, stack)
        members = [shop.start(consume_with_short_sessions) for _ in range(3)]
        shop.send()
        shop.wait_for(0.3)
        stopped, _ = members[0]
        shop.stop(stopped)
        shop.wait_for(1.0)
        _until(lambda: set(shop.committed().values()) == {RECORDS})
        continued = shop.diary.lines
        for events in shop.diary.events().values():
            check_order(events, {stopped.pid})
        os.kill(stopped.pid, signal.SIGCONT)
        _until(lambda: shop.members() == 3)
        assert set(shop.committed().values()) == {RECORDS}
        shop.send()
        shop.wait_for(1.0)
        shop.end(members)
        for events in shop.diary.events(continued).values():
            old = {(event.process, event.offset) for event in events if event.offset < RECORDS}
            assert len(old) <= 1, "more than the call that ran went on"
            assert {process for process, _ in old} <= {stopped.pid}
            new = [event for event in events if event.offset >= RECORDS]
            assert check_order(new, set(), expected=RECORDS) == 0
