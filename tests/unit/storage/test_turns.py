"""Writers of one bucket, 20 ms away, in virtual time: the same run on every machine.

Finds turns that are unfair, hand-overs that take long, and uploads and looks that are in vain.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.objects.bucket import Fetched, Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, unit_of
from tests.support.virtual_time import VirtualTime

PUT, GET = 0.02, 0.01
#: Clocks of two hosts differ by at most twice this (seconds).
SKEW = 5.0


class _FarBucket(MemoryBucket):
    """Requests take time, some more than others."""

    def __init__(self, time: VirtualTime, rng: random.Random) -> None:
        super().__init__("memory-bucket://far")
        self._time, self._rng = time, rng
        self.counts: Counter[str] = Counter()

    def pass_time(self, seconds: float) -> None:
        self._time.sleep(seconds * self._rng.uniform(0.8, 1.2))

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        self.pass_time(PUT / 2)
        created = super().put_if_absent(name, buffers)
        self.pass_time(PUT / 2)
        return created

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        self.pass_time(GET)
        self.counts["hit" if name in self.objects else "miss"] += 1
        return super().get(name, start, length)


class _FarFiles(BucketFiles):
    """Many requests at once take as long as one; no threads, which have no virtual time."""

    bucket: _FarBucket

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        self.bucket.pass_time(GET)
        for path, _, _ in places:
            name = paths.in_bucket(path)
            self.bucket.counts["hit" if name in self.bucket.objects else "miss"] += 1
            if name in self.bucket.objects:
                self.cache.add_whole(name, MemoryBucket.get(self.bucket, name).data)
        return True


class _Run:
    """What became of writers that committed for some seconds, with pauses between commits."""

    def __init__(self, pauses: Sequence[float], *, seconds: float) -> None:
        self._rng, self._time = random.Random(1), VirtualTime()
        self.bucket = _FarBucket(self._time, self._rng)
        self.logs = [self._open() for _ in pauses]
        make_topic(self.logs[0])
        self.bucket.counts.clear()
        self.waits: list[list[float]] = [[] for _ in pauses]
        end = self._time.now + seconds
        self._time.run([lambda n=n: self._write(n, pauses[n], end) for n in range(len(pauses))])
        assert self._time.failures == []
        self.commits = sum(map(len, self.waits))
        #: Of what one writer alone could commit in that time.
        self.share = self.commits * PUT / seconds
        self.lost = sum(log.lost_races for log in self.logs)

    def _open(self) -> BucketLog:
        identity = Identity(uuid.UUID(int=1), bucket=BucketFacts("", True, ()))
        rng = random.Random(self._rng.random())
        skew = rng.uniform(-SKEW, SKEW)
        environment = Environment(
            now_ns=lambda: int((self._time.now + skew) * 1e9),
            monotonic=lambda: self._time.now,
            sleep=self._time.sleep,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128)),
            rng=rng,
        )
        return BucketLog(_FarFiles(self.bucket), identity, environment)

    def _write(self, number: int, pause: float, end: float) -> None:
        log = self.logs[number]
        unit = unit_of(log.files, [b"x"])
        while self._time.now < end:
            if pause:
                self._time.sleep(self._rng.expovariate(1 / pause))
            begun = self._time.now
            log.commit([unit])
            self.waits[number].append(self._time.now - begun)


@pytest.fixture(scope="module")
def eight() -> _Run:
    return _Run([0.0] * 8, seconds=40.0)


def test_eight_busy_writers_commit_nearly_as_often_as_one(eight: _Run):
    assert eight.share > 0.9


def test_eight_busy_writers_upload_hardly_anything_in_vain(eight: _Run):
    assert eight.lost < 0.03 * eight.commits


def test_eight_busy_writers_have_the_same_share(eight: _Run):
    counts = [len(waits) for waits in eight.waits]
    assert min(counts) > 0.6 * max(counts)


def test_who_waits_fetches_each_commit_once_and_looks_rarely(eight: _Run):
    assert eight.bucket.counts["hit"] <= 7 * (eight.commits + eight.lost)
    assert eight.bucket.counts["miss"] <= 3 * eight.commits


def test_a_lone_writer_hardly_pauses_and_never_looks():
    alone = _Run([0.0], seconds=40.0)
    assert alone.share > 0.94
    assert alone.bucket.counts["hit"] == 0
    assert alone.bucket.counts["miss"] < 0.05 * alone.commits


def test_writers_that_commit_now_and_then_hardly_wait_for_each_other():
    waits = sorted(wait for own in _Run([0.3] * 3, seconds=60.0).waits for wait in own)
    assert waits[len(waits) // 2] < 10 * PUT
    assert waits[-1] < 4.0


def test_a_busy_writer_lets_one_in_that_commits_now_and_then():
    busy, rare = _Run([0.0, 0.5], seconds=60.0).waits
    assert len(busy) > 1_000
    assert sum(rare) / len(rare) < 2.0
