"""A process that may open no more files: each call says so and how to go on, and loses nothing."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kmq_spark as kmq

WORK: dict[str, Callable[[kmq.Store], object]] = {
    "join": lambda store: store.consumer("g", topics=["t"]).close(),
    "send": lambda store: _send(store, b"again"),
    "topic": lambda store: store.create_topic("u"),
    "seal": lambda store: store.seal(),
    "read": lambda store: store.read("t").read_all(),
}


def _send(store: kmq.Store, value: bytes) -> None:
    with store.producer() as producer:
        producer.send("t", value).result(10)


@contextmanager
def _no_file_more() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Those in use below the limit stay open, and the lowest free number is the next one.
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("work", WORK)
def test_who_may_open_no_more_files_is_told_the_way_out(tmp_path: Path, work: str):
    with kmq.open(tmp_path, maintenance=False) as other:
        other.create_topic("t")
        _send(other, b"v")
    with kmq.open(tmp_path, maintenance=False) as store:
        with _no_file_more(), pytest.raises(kmq.UnavailableError, match=r"ulimit -n"):
            WORK[work](store)
        WORK[work](store)
        assert store.read("t", columns=["value"]).read_all().column(0)[0].as_py() == b"v"
