"""What orderly consumers do in the end-to-end tests: processes that write down each call."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import kmq_spark as kmq
from kmq_spark.client.consuming.settings import ConsumerSettings
from kmq_spark.client.orderly import listening, reading

TOPIC = "t"
#: Of so many records one is suspended once before.
SUSPENDED = 37


def consume_orderly(url: str, diary: str, pipe: Connection) -> None:
    """Consume as a member of group `g` until told to stop or killed; a line per event."""
    written = os.open(diary, os.O_WRONLY | os.O_APPEND)  # lines of all processes, as they happen
    me = os.getpid()

    def note(what: str, context: kmq.OrderlyContext, record: kmq.Record) -> None:
        os.write(written, b"%s %d %d %d\n" % (what.encode(), me, context.partition, record.offset))

    def listen(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        (record,) = records
        note("begin", context, record)
        if record.offset % SUSPENDED == 5 and context.reconsume_times == (0,):
            note("suspend", context, record)
            return kmq.OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        threading.Event().wait(0.004)
        note("end", context, record)
        return kmq.OrderlyStatus.SUCCESS

    with (
        kmq.open(url, durability="os") as store,
        store.orderly_consumer("g", [TOPIC], listen, suspend_current_queue_time=0.01),
    ):
        pipe.send("started")
        pipe.recv()


def consume_with_short_sessions(url: str, diary: str, pipe: Connection) -> None:
    """The same, with a session of 2 seconds instead of 45, and an owner who looks after 1, not 20.

    The second must be less than the first, as they are where nothing is patched.
    """
    session = partial(ConsumerSettings, session_timeout=2.0)
    with (
        patch.object(reading, "ConsumerSettings", session),
        patch.object(listening, "_OWNER_SECONDS", 1.0),
    ):
        consume_orderly(url, diary, pipe)


class Event(NamedTuple):
    """A line of the diary."""

    what: str
    process: int
    offset: int


@dataclass
class Diary:
    """What the processes wrote down, by partition."""

    path: Path

    def events(self, since: int = 0) -> dict[int, list[Event]]:
        """Everything from a line on, as it happened."""
        found: dict[int, list[Event]] = defaultdict(list)
        for line in self.path.read_text().splitlines()[since:]:
            what, process, partition, offset = line.split()
            found[int(partition)].append(Event(what, int(process), int(offset)))
        return found

    @property
    def lines(self) -> int:
        """How much was written so far."""
        return len(self.path.read_text().splitlines())

    def done(self) -> set[tuple[int, int]]:
        """The records that some listener was done with."""
        return {
            (partition, event.offset)
            for partition, events in self.events().items()
            for event in events
            if event.what == "end"
        }


def check_order(events: list[Event], killed: set[int], expected: int = 0) -> int:
    """How often records came again: to a new owner, from where the killed one had committed.

    Nothing is passed over, and nobody begins while somebody else is inside who lives.
    """
    inside: Event | None = None
    owner, again = 0, 0
    for event in events:
        if event.what == "begin":
            assert inside is None or inside.process in killed, f"{event} while {inside} goes on"
            if event.offset != expected:
                assert event.offset < expected, f"{event} came before {expected}"
                assert owner in killed, f"{event} came again"
                assert event.process != owner, f"{event} came again"
                expected, again = event.offset, again + 1
            inside, owner = event, event.process
        else:
            assert inside is not None
            assert inside[1:] == event[1:], "who ends began before"
            inside = None
            expected += event.what == "end"
    return again
