"""A folder that is moved away, or replaced, while processes have the store open.

Finds: records that are acknowledged into two places, and files made or deleted in a store that only
has the name of the one that was opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kmq_spark as kmq

BIG = b"x" * 900_000


def _send(store: kmq.Store, *values: bytes) -> None:
    with store.producer() as producer:
        producer.send_batch("t", values, partition=0).result(10)


WORK: dict[str, Callable[[kmq.Store], object]] = {
    "send": lambda store: _send(store, b"later"),
    "send large": lambda store: _send(store, BIG, BIG),
    "seal": lambda store: store.seal(),
    "checkpoint": lambda store: store.checkpoint(),
    "collect": lambda store: store.collect(grace=0),
    "compact": lambda store: store.compact("t"),
    "trim": lambda store: store.trim("t", {0: 4}),
    "maintain": lambda store: store.maintain(grace=0),
    "pin": lambda store: store.pin(5).__enter__(),
    "commits": lambda store: list(store.commits()),
    "trace": lambda store: store.trace("t", 0, 3),
    "offsets of a group": lambda store: store.set_group_offsets("g", {"t": {0: 1}}),
    "repair": lambda store: store.repair(drop_damaged=True),
    "verify": lambda store: store.verify(deep=True),
    "read": lambda store: store.read("t").read_all(),
}


@pytest.fixture
def opened(tmp_path: Path) -> kmq.Store:
    """A store in a folder `here` with a copy `backup`, behind which it went on."""
    store = kmq.open(tmp_path / "here", maintenance=False)
    store.create_topic("t", cleanup="compact")
    for number in range(3):
        _send(store, b"%d" % number)
        store.seal()
    store.checkpoint()
    shutil.copytree(tmp_path / "here", tmp_path / "backup")
    store.compact("t")
    _send(store, b"3")
    return store


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("work", WORK)
def test_who_has_a_store_open_that_was_moved_does_nothing_in_its_old_place(
    opened: kmq.Store, tmp_path: Path, work: str
):
    (tmp_path / "here").rename(tmp_path / "there")
    with opened, pytest.raises(kmq.UnavailableError, match="moved"):
        WORK[work](opened)
    assert not (tmp_path / "here").exists()
    with kmq.open(tmp_path / "there", create=False) as store:
        assert store.offsets("t") == {0: (0, 4)}
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("work", WORK)
def test_who_has_a_store_open_that_was_restored_in_place_changes_nothing_there(
    opened: kmq.Store, tmp_path: Path, work: str
):
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "backup").rename(tmp_path / "here")
    before = _files(tmp_path / "here")
    with opened, pytest.raises(kmq.UnavailableError, match="replaced"):
        WORK[work](opened)
    assert _files(tmp_path / "here") == before
    with kmq.open(tmp_path / "here", create=False) as store:
        assert store.offsets("t") == {0: (0, 3)}
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("wait", ["consume", "receive", "look"])
@pytest.mark.parametrize("left", ["moved", "removed", "replaced"])
def test_who_waits_for_records_is_told_of_a_moved_store(
    opened: kmq.Store, tmp_path: Path, wait: str, left: str
):
    opened.create_queue("q")
    store = kmq.open(tmp_path / "here", read_only=wait == "look", maintenance=False)
    with opened, store, store.consumer(topics=["t"]) as consumer:
        assert consumer.consume()
        (tmp_path / "here").rename(tmp_path / "there")
        if left == "removed":
            shutil.rmtree(tmp_path / "there")
        elif left == "replaced":
            (tmp_path / "backup").rename(tmp_path / "here")
        with pytest.raises(kmq.UnavailableError, match="moved, removed or replaced"):
            if wait == "receive":
                store.queue("q").receive(timeout=30.0)
            else:
                consumer.consume(timeout=30.0)


@pytest.mark.parametrize("work", ["seal", "trim", "maintain"])
def test_who_waits_for_no_disk_is_told_of_a_moved_store_too(
    opened: kmq.Store, tmp_path: Path, work: str
):
    with opened, kmq.open(tmp_path / "here", durability="os", maintenance=False) as store:
        store.seal()
        opened.checkpoint()
        (tmp_path / "here").rename(tmp_path / "there")
        with pytest.raises(kmq.UnavailableError, match="moved"):
            WORK[work](store)


LOOKS: dict[str, Callable[[kmq.Store, kmq.Consumer], object]] = {
    "offsets": lambda store, _: store.offsets("t"),
    "topics": lambda store, _: store.topics(),
    "groups": lambda store, _: store.groups(),
    "find": lambda store, _: store.find("t", key=b"k"),
    "poll": lambda _, consumer: consumer.poll(),
    "consume": lambda _, consumer: consumer.consume(timeout=0),
    "consume_arrow": lambda _, consumer: consumer.consume_arrow(timeout=0),
    "lag": lambda _, consumer: consumer.lag(),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("left", ["moved", "replaced"])
def test_who_only_looks_is_told_of_a_moved_store(
    opened: kmq.Store, tmp_path: Path, look: str, left: str
):
    store = kmq.open(tmp_path / "here", read_only=True, maintenance=False)
    with opened, store, store.consumer(topics=["t"]) as consumer:
        assert consumer.consume()
        (tmp_path / "here").rename(tmp_path / "there")
        if left == "replaced":
            (tmp_path / "backup").rename(tmp_path / "here")
        with pytest.raises(kmq.UnavailableError, match="moved, removed or replaced"):
            while True:  # the folder is looked for now and then
                LOOKS[look](store, consumer)
