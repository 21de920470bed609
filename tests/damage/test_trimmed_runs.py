"""Damage where queues begin behind 0: their indexes are kept, or told as lost.

Finds: repairs and manifests made anew after which a message has another index than before, or
what was given up is back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.errors import CorruptionError, DataLossError
from kmq_storage import limits
from tests.damage.told import tell_losses

A_2, B_2 = b"a" * 100, b"b" * 100


@pytest.fixture(params=["alone", "with messages"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose queues `a` and `b` begin at 2, in a run without messages or with some."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 1)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "a", "b"], [b"0"] * 4)
        store.seal()
        queues.put_batch(["a", "b"], [A_2, B_2])
        store.seal()
        store.trim("inbox", {0: 4})
        if request.param == "with messages":
            store.compact("inbox")
        store.checkpoint()
    return tmp_path / "store"


def _begun(folder: Path) -> Path:
    """The newest run that begins at the start of the topic."""
    runs = folder.glob(f"segments/*/0/{3:020}-*.arrow")
    return max(runs, key=lambda run: run.stat().st_mtime_ns)


def _expect(folder: Path) -> None:
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        assert (queues.span("a"), queues.span("b")) == ((2, 3), (2, 3))
        with pytest.raises(DataLossError):  # nobody knows what stood behind the last run
            queues.get_many(["a", "b"], None, 9)
        assert queues.get_many(["a", "b"], None, 9)["value"].to_pylist() == [A_2, B_2]
        assert queues.put("a", b"more").result() == 3
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("collected", [True, False])
def test_a_manifest_that_is_made_from_segments_has_the_indexes(folder: Path, collected: bool):
    with kmq.open(folder) as store:
        if collected:
            store.collect(grace=0)
    for file in [*folder.glob("checkpoints/*"), *folder.glob("log/*")]:
        file.unlink()
    with kmq.open(folder) as store:
        store.repair(drop_damaged=True)
        assert store.topics()[0].offsets[0][0] == 4
    _expect(folder)


def test_a_manifest_that_is_made_from_segments_knows_that_the_very_first_message_was_trimmed(
    tmp_path: Path,
):
    folder = tmp_path / "store"
    with kmq.open(folder) as store:
        store.keyed_queues("inbox").put_batch(["a", "b"], [b"0", b"1"])
        store.seal()
        store.trim("inbox", {0: 1})
        store.checkpoint()
    for file in [*folder.glob("checkpoints/*"), *folder.glob("log/*")]:
        file.unlink()
    with kmq.open(folder) as store:
        store.repair(drop_damaged=True)
        assert store.offsets("inbox")[0][0] == 1
        assert store.keyed_queues("inbox").span("a") == (1, 1)


def test_a_record_that_is_first_after_a_repair_is_read_whatever_is_trimmed_later(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b"], [b"0", b"1"])
        store.seal()
        queues.put_batch(["a", "b"], [b"2", b"3"])
        store.seal()
    folder = tmp_path / "store"
    (first,) = folder.glob(f"segments/*/0/{0:020}-*.arrow")
    for file in [*folder.glob("checkpoints/*"), *folder.glob("log/*"), first]:
        file.unlink()
    with kmq.open(folder) as store:
        store.repair(drop_damaged=True)
        (name,) = (topic.name for topic in store.topics())
        store.alter_topic(name, retention=3600.0)
        store.checkpoint()
    with kmq.open(folder) as store:
        assert store.read(name, end={0: 4}).read_all()["offset"].to_pylist() == [2, 3]
        assert store.verify(deep=True).ok


def test_indexes_that_are_lost_are_given_up_only_when_somebody_says_so(folder: Path):
    run = _begun(folder)
    contents = run.read_bytes()
    indexes = contents.index((2).to_bytes(8, "little") * 2)
    run.write_bytes(contents[:indexes] + b"?" + contents[indexes + 1 :])
    with kmq.open(folder) as store:
        with pytest.raises(CorruptionError):
            store.keyed_queues("inbox").get("a", 2, 9)
        assert not store.verify(deep=True).ok
        assert not store.repair().ok
        report = store.repair(drop_damaged=True)
        assert report.ok
        assert "the indexes at which queues begin there are lost" in str(report)


def test_a_repair_of_messages_keeps_where_queues_begin(folder: Path):
    for run in folder.glob("segments/*/0/*.arrow"):
        run.write_bytes(run.read_bytes().replace(B_2, A_2))
    with kmq.open(folder) as store:
        assert store.repair(drop_damaged=True).ok
        queues = store.keyed_queues("inbox")
        assert (queues.span("a"), queues.get("a", 2, 9)) == ((2, 3), [A_2])
        tell_losses(queues, "b")
        assert queues.span("b") == (2, 2)
        assert queues.put("b", b"x").result() == 2
        assert store.verify(deep=True).ok


def test_queues_that_lost_the_run_behind_a_trim_are_read_and_written(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b"] * 50, [b"x"] * 100)
        store.seal()
        store.trim("inbox", {0: 30})
        store.checkpoint()
        store.collect(grace=0)
        queues.put("a", b"tail").result()
    (run,) = (tmp_path / "store" / "segments").rglob("*.arrow")
    run.unlink()
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        queues = store.keyed_queues("inbox")
        tell_losses(queues, "a")
        assert (list(queues.names()), queues.get("a", 0, 9)) == (["a"], [b"tail"])
        assert queues.put("a", b"new").result() == 1
        assert [each.value for each in queues.receive("a", 9)] == [b"tail", b"new"]
        store.seal()
        assert (queues.span("a"), queues.get("a", 0, 9)) == ((0, 2), [b"tail", b"new"])
