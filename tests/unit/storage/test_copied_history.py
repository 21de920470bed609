"""Finds a copy that puts records of one history behind those of another."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.copying import copy_topics

_ANOTHER = "the source was restored, or is another branch"


def _send(store: kmq.Store, *values: bytes) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send("t", value).result()


def _values(store: kmq.Store) -> list[bytes]:
    values: list[bytes] = store.read("t").read_all()["value"].to_pylist()
    return values


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        store.create_topic("t")
        _send(store, b"a", b"b")
        yield store


@pytest.fixture
def target(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "target", maintenance=False) as store:
        yield store


@pytest.mark.parametrize("more", [0, 1, 2, 4])
@pytest.mark.parametrize("sealed", [True, False])
def test_what_was_restored_from_an_older_state_is_refused(
    tmp_path: Path, source: kmq.Store, target: kmq.Store, more: int, sealed: bool
):
    source.close()
    shutil.copytree(tmp_path / "source", tmp_path / "saved")
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        _send(store, b"c", b"d")
        copy_topics(store.log, target.log)
    with kmq.open(tmp_path / "saved", maintenance=False) as restored:
        _send(restored, *[b"C", b"D", b"E", b"F"][:more])
        if sealed:
            restored.seal()
            target.seal()
        with pytest.raises(kmq.InvalidRequestError, match=_ANOTHER):
            copy_topics(restored.log, target.log)
    assert _values(target) == [b"a", b"b", b"c", b"d"]


def test_a_branch_is_refused_when_it_went_another_way(
    tmp_path: Path, source: kmq.Store, target: kmq.Store
):
    kmq.clone(tmp_path / "source", tmp_path / "branch")
    with kmq.open(tmp_path / "branch", maintenance=False) as branch:
        copy_topics(branch.log, target.log)
        copy_topics(source.log, target.log)  # they are the same yet
        _send(source, b"in the source")
        _send(branch, b"in the branch")
        copy_topics(source.log, target.log)
        with pytest.raises(kmq.InvalidRequestError, match=_ANOTHER):
            copy_topics(branch.log, target.log)
    assert _values(target) == [b"a", b"b", b"in the source"]


@pytest.mark.parametrize(
    "rows",
    [
        {"x": [math.nan], "when": pa.array([2**62], pa.timestamp("us"))},
        {"x": [None], "when": pa.array([0], pa.timestamp("us"))},
    ],
    ids=["no number, and a year that Python has not", "nothing"],
)
def test_any_value_is_the_same_as_its_copy(
    source: kmq.Store, target: kmq.Store, rows: dict[str, Any]
):
    schema = pa.schema([("x", pa.float64()), ("when", pa.timestamp("us"))])
    source.create_topic("typed", schema=schema)
    with source.producer() as producer:
        for _ in range(3):
            producer.send_arrow("typed", pa.table(rows, schema)).result()
            source.seal()
            copy_topics(source.log, target.log)
    assert target.offsets("typed") == {0: (0, 3)}


def test_what_was_trimmed_or_compacted_in_the_source_is_copied_on(
    source: kmq.Store, target: kmq.Store
):
    source.create_topic("c", cleanup="compact")
    with source.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send("c", value, key=b"k").result()
            copy_topics(source.log, target.log)
            source.compact("c")
            source.trim("t", {0: 2})
    assert target.offsets("c") == {0: (0, 3)}


def test_a_target_that_takes_no_writes_says_so(tmp_path: Path, source: kmq.Store):
    kmq.clone(tmp_path / "source", tmp_path / "branch", read_only=True)
    with (
        kmq.open(tmp_path / "branch", maintenance=False) as branch,
        pytest.raises(kmq.IllegalStateError, match="read-only"),
    ):
        copy_topics(source.log, branch.log)


def test_a_topic_that_is_named_twice_is_one_topic(source: kmq.Store, target: kmq.Store):
    assert copy_topics(source.log, target.log, ["t", "t"]).topics == 1
