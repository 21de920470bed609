"""Commits in a bucket, on a real S3 server over loopback, against bare uploads of the same client.

`slow` puts 20 ms before each request, about what a store in the same region takes: on loopback the
two cores are the limit, there the protocol is.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import dataset
from benchmarks.cases.senders import SPAWN
from benchmarks.job import Job, Measure, Sample
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.bucket.contention import TURN
from tests.support.fault_proxy import FaultProxy
from tests.support.s3 import S3Server, build_versitygw, missing_versitygw, start_versitygw

MANY = 8
SLOW_SECONDS = 0.02
TOPIC = "records"
#: How long a bare client sleeps when it finds nothing.
_LOOK_SECONDS = 0.02
#: About the size of a commit of one record.
_BODY = b"x" * 600


@contextmanager
def new_server(job: Job) -> Iterator[S3Server]:
    """A server of its own; RuntimeError where none can be built."""
    reason = missing_versitygw(build_versitygw())
    if reason:
        raise RuntimeError(reason)
    server = start_versitygw(job.path("buckets", uuid.uuid4().hex))
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def _place(job: Job, delay: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of a new store on a new server, and the options to reach it."""
    with ExitStack() as stack:
        server = stack.enter_context(new_server(job))
        options: dict[str, Any] = server.options()
        if delay:
            proxy = stack.enter_context(FaultProxy(server, hang_seconds=0.0, delay=delay))
            options = proxy.options()
        yield S3Server.new_url(), options


def _put(url: str, options: dict[str, Any], seconds: float, begin: Any, done: Any) -> None:
    from kmq_storage import paths
    from kmq_storage.objects.open_bucket import open_bucket_files

    bucket = open_bucket_files(url, "s3", options, read_only=False).bucket
    bucket.put_if_absent("log/warm", [_BODY])
    begin.wait()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        bucket.put_if_absent(paths.commit_object(count), [_BODY])
        count += 1
    done.put((count, 0))


def _put_in_turns(url: str, options: dict[str, Any], seconds: float, begin: Any, done: Any) -> None:
    """What any protocol costs in which each writer knows what the others wrote: bare requests.

    Turns of 32 go round without anything being said; who has none fetches what the others put.
    """
    from kmq_storage import paths
    from kmq_storage.objects.open_bucket import open_bucket_files

    bucket = open_bucket_files(url, "s3", options, read_only=False).bucket
    bucket.put_if_absent(f"log/warm-{uuid.uuid4().hex}", [_BODY])
    own = begin.wait()
    name, count, end = 1_000_000, 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            if name // TURN % MANY == own:
                bucket.put_if_absent(paths.commit_object(name), [_BODY])
                count += 1
            else:
                bucket.get(paths.commit_object(name))
            name += 1
        except FileNotFoundError:
            time.sleep(_LOOK_SECONDS)
    done.put((count, 0))


def commit(url: str, options: dict[str, Any], seconds: float, begin: Any, done: Any) -> None:
    import kmq_spark as kmq

    value, key = dataset.values(1)[0], dataset.keys(1)[0]
    with (
        kmq.open(url, storage_options=options, maintenance=False) as store,
        store.producer(linger=0.0) as producer,
    ):
        producer.send(TOPIC, value, key).result()
        begin.wait()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            producer.send(TOPIC, value, key).result()
            count += 1
        assert isinstance(store.log, BucketLog)
        done.put((count, store.log.lost_races))


def _rates(job: Job, work: Any, processes: int, delay: float) -> Sample:
    import kmq_spark as kmq

    seconds = job.sizes.seconds
    with _place(job, delay) as (url, options):
        with kmq.open(url, storage_options=options) as store:
            store.create_topic(TOPIC)
        begin, done = SPAWN.Barrier(processes), SPAWN.Queue()
        arguments = (url, options, seconds, begin, done)
        started = [SPAWN.Process(target=work, args=arguments) for _ in range(processes)]
        for process in started:
            process.start()
        found = [done.get(timeout=120 + seconds) for _ in started]
        for process in started:
            process.join()
        count = sum(commits for commits, _ in found)
        if work is commit:
            _check(url, options, count + processes)
    lost = sum(races for _, races in found)
    return {"rate": count / seconds, "uploads": (count + lost) / seconds}


def _check(url: str, options: dict[str, Any], rows: int) -> None:
    """Raise unless every commit is there, once."""
    import kmq_spark as kmq

    with kmq.open(url, storage_options=options, read_only=True) as store:
        held = sum(end - start for start, end in store.offsets(TOPIC).values())
    if held != rows:
        raise RuntimeError(f"the bucket holds {held} of {rows} records")


def puts(job: Job) -> Measure:
    """Bare uploads of one client, one after another."""
    return lambda: _rates(job, _put, 1, 0.0)


def eight_in_turns(job: Job) -> Measure:
    """Bare uploads of eight clients in turns, each of which fetches those of the others."""
    return lambda: _rates(job, _put_in_turns, MANY, 0.0)


def one_writer(job: Job) -> Measure:
    """Commits of one writer, each waited for."""
    return lambda: _rates(job, commit, 1, 0.0)


def eight_writers(job: Job) -> Measure:
    """Commits of eight processes on one store."""
    return lambda: _rates(job, commit, MANY, 0.0)


def puts_slow(job: Job) -> Measure:
    """Bare uploads, 20 ms away."""
    return lambda: _rates(job, _put, 1, SLOW_SECONDS)


def one_writer_slow(job: Job) -> Measure:
    """Commits of one writer, 20 ms away."""
    return lambda: _rates(job, commit, 1, SLOW_SECONDS)


def eight_writers_slow(job: Job) -> Measure:
    """Commits of eight processes, 20 ms away."""
    return lambda: _rates(job, commit, MANY, SLOW_SECONDS)
