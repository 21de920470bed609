"""A store for tests of the data source: numbered records, and what a topic holds by now."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kmq_spark as kmq
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from tests.support.damage import flip

Place = tuple[str, int, int]


class Shop:
    """Writes numbered records and knows where they went."""

    def __init__(self, path: Path | str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = str(path)
        self.store = kmq.open(path, durability="os", storage_options=storage_options)
        self._producer = self.store.producer(linger=0)
        self._number = 0

    def create(self, topic: str, partitions: int = 1, **settings: Any) -> uuid.UUID:
        """Make a topic; its id."""
        return self.store.create_topic(topic, partitions=partitions, **settings).topic_id

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.store.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.store.delete_topic(topic)

    def delete_group(self, group: str) -> None:
        """Delete a group once its query's process, which Spark ends by and by, is gone."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.store.delete_group(group)
            except kmq.IllegalStateError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def send(self, topic: str, partition: int = 0, count: int = 1) -> list[Place]:
        """Append numbered records in one batch; their places."""
        numbers = range(self._number, self._number + count)
        self._number += count
        sent = self._producer.send_batch(
            topic,
            [b"v%d" % n for n in numbers],
            [b"k%d" % (n % 7) for n in numbers],
            partition=partition,
        )
        return [(each.topic, each.partition, each.offset) for each in sent.result(timeout=30)]

    def places(self, topic: str) -> list[Place]:
        """Where every record of a topic is, by partition and offset."""
        offsets = self.store.offsets(topic)
        return [(topic, p, n) for p, (start, end) in offsets.items() for n in range(start, end)]

    def values(self, topic: str) -> list[bytes]:
        """The values of a topic, by partition and offset."""
        return self.store.read(topic).read_all().column("value").to_pylist()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self.store.describe_topic(topic).partitions

    def lsn(self) -> int:
        """The last commit."""
        return self.store.log.refresh().lsn

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit a group's offsets."""
        self.store.set_group_offsets(group, {topic: offsets})

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed of a topic; nothing for a group that nobody knows."""
        if group not in {known.name for known in self.store.groups()}:
            return {}
        return dict(self.store.describe_group(group).committed.get(topic, {}))

    def cut_out(self, topic: str, partition: int, start: int, end: int) -> None:
        """Give up offsets, as a repair does."""
        state = self.store.log.refresh()
        place = (state.topic(topic).id, partition, start, end)
        gap = GapEntry(*place, end - start, 0, state.lsn, "damaged")
        self.store.log.commit([Unit((gap,))])

    def damage_commit(self, lsn: int) -> None:
        """Change a byte in the header of a commit, for whoever opens the store from now on."""
        self.store.log.sync(self.lsn())
        (frame,) = self.store.log._past.frames(lsn, lsn)
        self.close()
        (file,) = Path(self.url).glob("log/*.log")
        flip(file, frame.position + 10)

    def close(self) -> None:
        """Close the store."""
        self.store.close()
