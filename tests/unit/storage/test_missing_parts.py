"""Parts of a store that somebody removed: an error that says so, never a store that is shorter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kmq_spark as kmq

LOG = "log/00000000000000000001.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with kmq.open(folder) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"small").result()
            producer.send_batch("t", [bytes(1000)] * 3000).result()
        with store.consumer("g", topics=["t"]) as consumer:
            consumer.consume()
            consumer.commit()
    return folder


def test_a_store_without_its_identity_is_not_taken_for_a_new_one(folder: Path):
    (folder / "kmq.json").unlink()
    before = (folder / LOG).read_bytes()
    with pytest.raises(kmq.CorruptionError, match=r"kmq\.json .* is missing"):
        kmq.open(folder)
    assert not (folder / "kmq.json").exists()
    assert (folder / LOG).read_bytes() == before


@pytest.mark.parametrize("call", ["offsets", "read", "describe_topic"])
def test_a_topic_whose_log_file_is_empty_is_damaged_and_not_unknown(folder: Path, call: str):
    os.truncate(folder / LOG, 0)
    with kmq.open(folder) as store, pytest.raises(kmq.CorruptionError, match=LOG):
        getattr(store, call)("t")


def test_a_group_whose_log_file_is_gone_is_damaged_and_not_unknown(folder: Path):
    (folder / LOG).unlink()
    with kmq.open(folder) as store, pytest.raises(kmq.CorruptionError, match="acknowledged"):
        store.describe_group("g")


def test_nothing_is_acknowledged_into_a_folder_that_was_removed(folder: Path):
    with kmq.open(folder) as store, store.producer() as producer:
        producer.send("t", b"before").result()
        shutil.rmtree(folder)
        with pytest.raises(kmq.UnavailableError, match="was removed"):
            producer.send("t", b"after").result(10)


def test_a_staged_file_that_was_cut_names_its_partition_and_offsets(folder: Path):
    (staged,) = (folder / "staged").iterdir()
    os.truncate(staged, 1000)
    with kmq.open(folder) as store:
        with pytest.raises(kmq.CorruptionError, match=r"shorter .* t-0, offsets 1 to") as caught:
            store.read("t", start={0: 1}).read_all()
        assert caught.value.context["start"] == 1
        assert store.read("t", end={0: 1}).read_all().num_rows == 1


CALLS: dict[str, Callable[[kmq.Store], object]] = {
    "topics": lambda store: store.topics(),
    "describe_topic": lambda store: store.describe_topic("t"),
    "offsets": lambda store: store.offsets("t"),
    "offsets_for_time": lambda store: store.offsets_for_time("t", datetime(2000, 1, 1, tzinfo=UTC)),
    "groups": lambda store: store.groups(),
    "describe_group": lambda store: store.describe_group("g"),
    "lag": lambda store: store.consumer(topics=["t"]).lag(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("last", [True, False])
def test_what_is_told_of_a_damaged_end_comes_with_a_warning(folder: Path, call: str, last: bool):
    """The last commit of all is damaged, or the last one of the topic `t`."""
    with kmq.open(folder) as store:
        if not last:
            store.set_group_offsets("g", {"t": {0: 0}})
        else:
            store.create_topic("other")
    with (folder / LOG).open("r+b") as log:
        contents = log.read(65_536)
        at = _frame(contents, 1 if last else 2) + 20
        log.seek(at)
        log.write(bytes([contents[at] ^ 1]))
    with kmq.open(folder) as store, pytest.warns(kmq.KmqWarning, match="are damaged") as told:
        CALLS[call](store)
    assert LOG in str(told[0].message)
    assert {each.filename for each in told} == {__file__}


def _frame(contents: bytes, from_end: int) -> int:
    """Where a frame of the file begins, counted from its end."""
    begins = [at for at in range(0, len(contents), 64) if contents[at : at + 4] == b"KMQ1"]
    return begins[-from_end]
