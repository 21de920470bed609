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
from kmq_storage.copying import history, partition
from kmq_storage.copying.topics import copy_topics

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


def test_a_last_record_that_is_not_answered_for_is_not_taken_for_the_same(
    tmp_path: Path, source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    kmq.clone(tmp_path / "source", tmp_path / "branch")
    _send(source, b"c")
    copy_topics(source.log, target.log)

    def silent(*_: Any, **__: Any) -> None:
        raise kmq.UnavailableError("no answer")

    with kmq.open(tmp_path / "branch", maintenance=False) as branch:
        _send(branch, b"C", b"D")
        with monkeypatch.context() as down:
            down.setattr(history, "scan", silent)
            with pytest.raises(kmq.UnavailableError):
                copy_topics(branch.log, target.log)
    assert _values(target) == [b"a", b"b", b"c"]


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


@pytest.mark.parametrize("sealed", [True, False])
def test_a_branch_of_keyed_queues_is_refused_too(tmp_path: Path, target: kmq.Store, sealed: bool):
    with kmq.open(tmp_path / "s", maintenance=False) as source:
        source.keyed_queues("in").put_batch(["a"], ["1"])
        kmq.clone(tmp_path / "s", tmp_path / "branch")
        source.keyed_queues("in").put("a", "source").result()
        copy_topics(source.log, target.log)
        source.keyed_queues("in").put("a", "more").result()
        if sealed:
            source.seal()
            source.compact("in")
        copy_topics(source.log, target.log)  # it is the same one
    with kmq.open(tmp_path / "branch", maintenance=False) as branch:
        branch.keyed_queues("in").put_batch(["a"] * 3, ["branch", "more", "and more"])
        if sealed:
            branch.seal()
        with pytest.raises(kmq.InvalidRequestError, match=_ANOTHER):
            copy_topics(branch.log, target.log)
    assert target.keyed_queues("in").get("a", 0, 9) == [b"1", b"source", b"more"]


def test_what_a_group_did_in_the_target_stays_and_all_else_is_copied(
    source: kmq.Store, target: kmq.Store
):
    inboxes = source.keyed_queues("in")
    inboxes.put_batch(["a"] * 4, list("1234"))
    inboxes.ack(inboxes.receive("a", 2))
    source.create_topic("zz")
    copy_topics(source.log, target.log)
    theirs = target.keyed_queues("in")
    theirs.ack(theirs.receive("a", 1))
    inboxes.ack(inboxes.receive("a", 2))
    inboxes.put("a", b"5").result()
    with source.producer() as producer:
        producer.send("zz", b"later").result()
    with pytest.warns(kmq.KmqWarning, match="what group default did with the queues of in stays"):
        copy_topics(source.log, target.log)
    assert target.offsets("zz") == {0: (0, 1)}
    assert [each.value for each in theirs.receive("a", 9)] == [b"4", b"5"]


def test_a_copy_of_trimmed_queues_that_stopped_before_its_first_run_has_none_yet(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    inboxes = source.keyed_queues("in")
    inboxes.put_batch(["a"] * 40, [b"%d" % n for n in range(40)])
    source.trim("in", {0: 30})

    def dies(*_: Any) -> Any:
        raise OSError("the disk went away")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "write_segment", dies)
        with pytest.raises(OSError, match="went away"):
            copy_topics(source.log, target.log, ["in"])
    theirs = target.keyed_queues("in")
    assert (list(theirs.names()), theirs.get("a", 0, 9), theirs.size("a")) == ([], [], 0)
    copy_topics(source.log, target.log, ["in"])
    assert theirs.get("a", 30, 99) == inboxes.get("a", 30, 99) != []
