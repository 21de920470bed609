"""Stores in buckets, of which objects are damaged or deleted at random, and that are repaired.

Is an offset ever given to two records, or does one vanish that nobody is told of?

python -m tests.damage.bucket_fuzz --seeds 1000
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import traceback
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import kmq_spark as kmq
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Files
from tests.damage.bucket import commits_of, store_in
from tests.support.memory_bucket import MemoryBucket

PARTITIONS = 2
_KINDS = ("log", "log", "log", "segments", "segments", "pages", "checkpoints", "collected")
#: Where nobody knows whether records were lost or trimmed, only the report tells.
_BEGINS = re.compile(r"-(\d+): begins at offset (\d+)")
_HOUR = 3_600_000_000


class WrongError(AssertionError):
    """What must not be."""


class Fuzz:
    """One store, and what its producers were told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_700_000_000_000_000
        self.bucket = MemoryBucket(f"memory-bucket://fuzz-{seed}", clock=self._clock)
        #: By partition and offset what was acknowledged.
        self.given: dict[tuple[int, int], bytes] = {}
        #: By partition the offsets that readers were told are lost, and those that were trimmed.
        self.told: list[tuple[int, range]] = []
        self.log: list[str] = []
        self.topic = "t"
        #: The topic that is looked at, and before it those of which nothing was left.
        self.topic_ids: list[uuid.UUID] = []

    def _clock(self) -> int:
        self.now += 1000
        return self.now

    def run(self, rounds: int = 3) -> None:
        """Work, damage and repair in turns."""
        with self._opened() as store:
            self._make_topic(store)
        for _ in range(rounds):
            self._work()
            with self._opened() as knows:
                if self.rng.random() < 0.5:
                    knows.topics()
                self._harm()
                self._repair()
                self._check()
                with suppress(kmq.CorruptionError, kmq.NotFoundError):
                    self._send(knows)
            self._check()

    def _work(self) -> None:
        works = (self._send, self._send, self._send, self._seal, self._checkpoint)
        works += (self._merge, self._collect, self._trim)
        with self._opened() as store:
            for _ in range(self.rng.randrange(2, 14)):
                self.rng.choice(works)(store)
            self._send(store)

    @contextmanager
    def _opened(self) -> Iterator[kmq.Store]:
        with store_in(self.bucket) as store:
            yield store

    def _files(self) -> Files:
        return BucketFiles(self.bucket)

    def _send(self, store: kmq.Store) -> None:
        partition, values = self._drawn()
        with store.producer() as producer:
            sent = [producer.send(self.topic, value, partition=partition) for value in values]
            for value, each in zip(values, sent, strict=True):
                self._give(partition, each.result(10).offset, value)
        self.log.append(f"{len(values)} records to {partition} up to {each.result().offset}")

    def _drawn(self) -> tuple[int, list[bytes]]:
        partition = self.rng.randrange(PARTITIONS)
        return partition, [
            b"%d" % self.rng.getrandbits(60) for _ in range(self.rng.randrange(1, 5))
        ]

    def _give(self, partition: int, offset: int, value: bytes) -> None:
        if (partition, offset) in self.given:
            raise WrongError(f"offset {offset} of partition {partition} is given out twice")
        self.given[partition, offset] = value

    def _seal(self, store: kmq.Store) -> None:
        self.log.append(f"seal {store.seal().segments}")

    def _checkpoint(self, store: kmq.Store) -> None:
        self.log.append(f"checkpoint {store.checkpoint().lsn}")

    def _merge(self, store: kmq.Store) -> None:
        store.compact(self.topic)
        self.log.append("merge")

    def _trim(self, store: kmq.Store) -> None:
        partition = self.rng.randrange(PARTITIONS)
        start, end = store.offsets(self.topic)[partition]
        to = self.rng.choice((end, (start + end) // 2))
        store.trim(self.topic, {partition: to})
        self.told.append((partition, range(to)))
        self.log.append(f"trim {partition} to {to}")

    def _collect(self, store: kmq.Store) -> None:
        self.now += self.rng.choice((0, 2 * _HOUR))
        store.collect(grace=0)
        self.log.append("collect")

    def _harm(self) -> None:
        *_, last = commits_of(self.bucket)  # of what was deleted behind it nobody can tell
        if self.rng.random() < 0.15:
            self._lose("checkpoints/")
        for _ in range(self.rng.choice((1, 2, 3, 4, 8))):
            kind = self.rng.choice(_KINDS)
            names = [name for name in self.bucket.objects if name.startswith(f"{kind}/")]
            if not names:
                continue
            name, body = self.rng.choice(names), None
            if self.rng.random() < 0.5 or name == last:
                body = bytearray(self.bucket.objects[name])
                if body:
                    body[self.rng.randrange(len(body))] ^= 1 << self.rng.randrange(8)
                self.bucket.objects[name] = bytes(body)
            else:
                self.bucket.delete(name)
            self.log.append(f"{'flip' if body is not None else 'delete'} {name}")

    def _lose(self, folder: str) -> None:
        self.bucket.delete(*[name for name in self.bucket.objects if name.startswith(folder)])
        self.log.append(f"delete {folder}")

    def _repair(self) -> None:
        try:
            with self._opened() as store:
                store.log.refresh()
        except kmq.CorruptionError as error:
            self.log.append(f"rebuild: {error}")
            files = self._files()
            done = rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)
            self._note("made anew", done)
        with self._opened() as store:
            if self.rng.random() < 0.5:
                self._note("repair", store.repair().notes)
            report = store.repair(drop_damaged=True)
            self._note("repair, dropping", report.notes)
        if report.damage:
            raise WrongError(f"damage is left: {report.damage}")

    def _note(self, what: str, notes: Sequence[str]) -> None:
        self.log += [what, *notes]
        for partition, start in _BEGINS.findall("\n".join(notes)):
            self.told.append((int(partition), range(int(start))))

    def _make_topic(self, store: kmq.Store) -> None:
        self.topic_ids.append(store.create_topic("t", partitions=PARTITIONS).topic_id)
        self.given, self.told = {}, []

    def _look_for_topic(self, store: kmq.Store) -> None:
        """It has another name where the commit that made it is lost, and is gone with the rest.

        One that was gone before comes back when a manifest is made from segments.
        """
        for each in store.topics():
            if each.topic_id in self.topic_ids[:-1]:
                store.delete_topic(each.name)
        if not store.topics():
            self._make_topic(store)
            self.log.append("nothing is left of the topic")
        (topic,) = store.topics()
        if topic.topic_id != self.topic_ids[-1]:
            raise WrongError(f"topic {topic.name} is none that was made")
        self.topic = topic.name
        if topic.partitions < PARTITIONS:  # nobody can tell that there were more
            known = range(topic.partitions)
            self.given = {place: v for place, v in self.given.items() if place[0] in known}
            store.add_partitions(self.topic, PARTITIONS)

    def _check(self) -> None:
        with self._opened() as store:
            self._look_for_topic(store)
            found, told = {}, self.told
            for partition in range(PARTITIONS):
                for offset, value in read_around(store, self.topic, partition, told):
                    found[partition, offset] = value
        for place, value in found.items():
            if self.given.get(place) != value:
                raise WrongError(f"{place} has another record")
        for place in self.given:
            if place not in found and not any(
                place[0] == partition and place[1] in lost for partition, lost in told
            ):
                raise WrongError(f"{place} vanished in silence")


def read_around(
    store: kmq.Store, topic: str, partition: int, told: list[tuple[int, range]]
) -> Iterator[tuple[int, bytes]]:
    """The records of a partition; what readers are told is lost is added to `told`."""
    start, end = store.offsets(topic)[partition]
    while start < end:
        bounds: dict[str, dict[int, int]] = {"start": {partition: start}}
        try:
            table = store.read(topic, partitions=[partition], **bounds).read_all()
            behind = end
        except kmq.DataLossError as error:
            gap, behind = error.context["start"], error.context["end"]
            told.append((partition, range(gap, behind)))
            bounds["end"] = {partition: max(gap, start)}
            table = store.read(topic, partitions=[partition], **bounds).read_all()
        yield from zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
        start = behind


def wrong_with(seed: int, kind: type[Fuzz] = Fuzz) -> str:
    """What went wrong with a seed, and what was done before; nothing when all is well."""
    fuzz = kind(seed)
    try:
        with warnings.catch_warnings(action="ignore", category=kmq.KmqWarning):
            fuzz.run()
    except Exception as wrong:
        fuzz.log += traceback.format_exc().splitlines()[-30:]
        return "\n  ".join([f"seed {seed}: {wrong}", *fuzz.log])
    return ""


def main(program: str = "bucket_fuzz", kind: type[Fuzz] = Fuzz) -> int:
    """Run many seeds, and print what was wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.damage.{program}")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    found = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        wrong = wrong_with(seed, kind)
        found += bool(wrong)
        if wrong:
            print(wrong)
    print(f"{asked.seeds} seeds, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
