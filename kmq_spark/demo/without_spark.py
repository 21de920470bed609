"""The second and the third step in this process, with Arrow: for machines without Java."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from kmq_spark.demo import archive, flights, messages, totals
from kmq_spark.demo.steps import DELAYS, FLIGHTS, GROUP


class PlainSteps:
    """A member of the consumer group, and a producer for what it computes."""

    name = "Python"

    def __init__(self, store: kmq.Store) -> None:
        self._store = store
        self._consumer = store.consumer(GROUP)
        self._producer = store.producer()

    def start(self) -> None:
        """Subscribe to the topic."""
        self._consumer.subscribe([FLIGHTS])

    def work(self, seconds: float) -> None:
        """Read what there is; write its totals and the group's offsets in one transaction."""
        records = self._consumer.consume_arrow(timeout=seconds)
        if records is None:
            return
        part = totals.of_flights(messages.decode(records["value"], flights.SCHEMA))
        with self._producer.transaction() as transaction:
            transaction.send_arrow(DELAYS, messages.encode(part, totals.keys(part)))
            transaction.commit_offsets(self._consumer)

    def archive(self, path: Path) -> archive.Archive:
        """Archive with Arrow's Parquet writer."""
        return archive.write_with_arrow(self._store, FLIGHTS, path=path)

    def close(self) -> None:
        """Close consumer and producer."""
        self._consumer.close()
        self._producer.close()
