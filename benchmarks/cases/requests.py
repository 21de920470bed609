"""Requests that a bucket gets, counted between kmq and a real S3 server.

They cost money and round trips, and are the same on a busy machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import kmq_spark as kmq
from benchmarks import dataset
from benchmarks.cases.bucket import MANY, TOPIC, commit, new_server
from benchmarks.cases.senders import SPAWN
from benchmarks.job import Job, Measure, Sample
from tests.support.fault_proxy import FaultProxy
from tests.support.s3 import S3Server

_COMMITS = 200
_SEGMENTS, _ROWS, _LOOKUPS = 20, 5_000, 50


@contextmanager
def _counted(job: Job) -> Iterator[tuple[str, FaultProxy]]:
    """The URL of a new store with a topic, and what its requests go through."""
    with new_server(job) as server, FaultProxy(server, hang_seconds=0.0) as proxy:
        url = S3Server.new_url()
        with kmq.open(url, storage_options=server.options()) as store:
            store.create_topic(TOPIC)
        yield url, proxy


def _per(proxy: FaultProxy, count: int) -> Sample:
    """Requests since the last ones were forgotten, for each of so many."""
    return {
        "all_requests": len(proxy.requests) / count,
        "put_requests": proxy.count("PUT") / count,
    }


def one_writer(job: Job) -> Measure:
    """Requests per commit of one writer, each commit waited for."""

    def measure() -> Sample:
        with (
            _counted(job) as (url, proxy),
            kmq.open(url, storage_options=proxy.options(), maintenance=False) as store,
            store.producer(linger=0.0) as producer,
        ):
            producer.send(TOPIC, b"first").result()
            proxy.requests.clear()
            for value in dataset.values(_COMMITS):
                producer.send(TOPIC, value).result()
            return _per(proxy, _COMMITS)

    return measure


def eight_writers(job: Job) -> Measure:
    """Requests per commit of eight processes that all commit as fast as they can."""

    def measure() -> Sample:
        with _counted(job) as (url, proxy):
            begin, done = SPAWN.Barrier(MANY + 1), SPAWN.Queue()
            arguments = (url, proxy.options(), job.sizes.seconds, begin, done)
            processes = [SPAWN.Process(target=commit, args=arguments) for _ in range(MANY)]
            for process in processes:
                process.start()
            begin.wait()
            proxy.requests.clear()
            found = [done.get(timeout=120 + job.sizes.seconds) for _ in processes]
            for process in processes:
                process.join()
            return _per(proxy, sum(commits for commits, _ in found))

    return measure


def follower(job: Job) -> Measure:
    """Requests of a waiting follower per commit that comes."""

    def measure() -> Sample:
        with (
            _counted(job) as (url, proxy),
            kmq.open(url, storage_options=proxy.server.options(), maintenance=False) as store,
            store.producer(linger=0.0) as producer,
            kmq.open(url, storage_options=proxy.options(), read_only=True) as other,
        ):
            producer.send(TOPIC, b"first").result()
            lsn = other.log.refresh().lsn
            proxy.requests.clear()
            for value in dataset.values(_COMMITS):
                producer.send(TOPIC, value).result()
                other.log.wait(lsn, 60.0)
                lsn += 1
            return _per(proxy, _COMMITS)

    return measure


def lookup(job: Job) -> Measure:
    """Most requests that one record takes, by its offset, in a store of many segments."""

    def measure() -> Sample:
        with _counted(job) as (url, proxy):
            with kmq.open(url, storage_options=proxy.server.options(), maintenance=False) as store:
                _fill(store)
            options = {**proxy.options(), "cache_bytes": 1}
            with kmq.open(url, storage_options=options, read_only=True) as store:
                return {"most_requests": max(_lookups(store, proxy))}

    return measure


def _fill(store: kmq.Store) -> None:
    with store.producer() as producer:
        for _ in range(_SEGMENTS):
            producer.send_batch(TOPIC, dataset.values(_ROWS)).result()
            store.seal()
    store.checkpoint()


def _lookups(store: kmq.Store, proxy: FaultProxy) -> Iterator[float]:
    """Requests of each of some reads of one record; what shows where the log ends is left out."""
    assert store.read(TOPIC).read_all().num_rows == _SEGMENTS * _ROWS
    for offset in random.Random(7).sample(range(_SEGMENTS * _ROWS), _LOOKUPS):
        proxy.requests.clear()
        store.read(TOPIC, start={0: offset}, end={0: offset + 1}).read_all()
        yield len(proxy.requests) - proxy.count("GET", below="/log/")
