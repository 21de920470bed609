"""Queues that don't take everything: filters that change, what expires or was sent before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kmq_spark.client.queues.delivery import Delivery
from kmq_storage.errors import UnavailableError
from kmq_storage.format.queue_entries import LookEntry
from kmq_storage.format.records import KEY, PROPERTIES, PROPERTIES_TYPE, stored_schema
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.staging import SizedBatch
from kmq_storage.queues.administration import bind_queue
from tests.simulation.lineage import Node
from tests.simulation.oracle import Record
from tests.simulation.queue_world import PathCheck, QueueWorld
from tests.simulation.queueing import JOBS
from tests.simulation.scheduler import Task
from tests.simulation.writer import batch_of

_TOPIC = "orders"
#: What the filters let in, by the records' identities.
_LETS_IN = {
    None: lambda _: True,
    "rest = 0": lambda identity: identity % 3 == 0,
    "rest <> 0 or nothing is not null": lambda identity: identity % 3 != 0,
}
_BINDINGS = (1, 5)


class ChoosyWorld(QueueWorld):
    """Where a queue is bound anew by other filters, and senders name `uniq` and expiry."""

    expires = choosy = True

    def more_settings(self) -> dict[str, Any]:
        """A window of `uniq` that is over soon, or never."""
        return {"uniq_window": self.rng.choice((5.0, 1_000.0))}

    def batch_of(self, records: list[Record]) -> SizedBatch:
        """Records with a property that the filters ask for."""
        plain = batch_of(records)
        rows = [[("rest", _property(record.identity % 3))] for record in records]
        properties = pa.array(rows, PROPERTIES_TYPE)
        flags = PROPERTIES | (KEY if "key" in plain.batch.schema.names else 0)
        schema = stored_schema(flags)
        columns = {**dict(zip(plain.batch.schema.names, plain.batch.columns, strict=True))}
        columns["properties"] = properties
        arrays = [columns[name] for name in schema.names]
        return SizedBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), plain.size)

    def _tasks(self) -> list[Task]:
        return [*super()._tasks(), Task("binder", Binder(self).run)]

    def check_delivery(self, held: Delivery, holder: int, *, durable: bool) -> None:
        """Beside the rest: what comes has the property that it was sent with."""
        super().check_delivery(held, holder, durable=durable)
        if held.topic == _TOPIC:
            assert held.properties == {"rest": held[7] % 3}

    def _path_checks(self) -> tuple[PathCheck, ...]:
        return (self._check_filters, self._check_doubles)

    def _check_filters(self, path: Sequence[Node]) -> None:
        """What entered is what the filter of its place lets in."""
        account, topic_id = path[0].ledger.account(JOBS), self.topics[_TOPIC]
        for node in path:
            for entry in node.entries:
                if not isinstance(entry, LookEntry) or entry.topic_id != topic_id:
                    continue
                entered = {o for first, rows in entry.entered for o in range(first, first + rows)}
                key = topic_id, entry.partition
                for offset in range(entry.start, entry.end):
                    identity = self.oracle.durable.get((_TOPIC, entry.partition, offset))
                    if identity is not None:
                        wanted = _LETS_IN[account.filter_at(key, offset)](identity)
                        assert wanted == (offset in entered), f"{offset} entered, or it did not"
                        self.done["entered" if wanted else "left out"] += 1

    def _check_doubles(self, path: Sequence[Node]) -> None:
        """Where a sender was told that its record is, it is."""
        stored = {
            (digest, offset)
            for node in path
            for entry in node.entries
            if isinstance(entry, UniqEntry)
            for _, offset, digest in entry.uniqs
        }
        assert self.receivers.doubles <= stored, "a record that a sender was told of is not there"


def _property(number: int) -> dict[str, int]:
    return {"int": number}


class Binder:
    """One process that binds the queue anew now and then, by another filter."""

    def __init__(self, world: ChoosyWorld) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))

    def run(self) -> None:
        """Bind it a few times, then end."""
        log = self._world.open(writes=True)
        for _ in range(self._rng.randrange(*_BINDINGS)):
            try:
                wanted = self._rng.choice(list(_LETS_IN))
                bind_queue(log, JOBS, [_TOPIC], "earliest", filter=wanted)
                self._world.done["bound"] += 1
                self._world.rest(log, log.state.lsn)
            except UnavailableError:
                self._world.done["unbound"] += 1
