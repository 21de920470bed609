"""Damage of a run is told by topic, offsets, queue, index and file, with what helps.

Finds: errors that name no topic or rows instead of offsets, a range of indexes that is larger than
the damage, puts that look as if they were not stored, and repairs that lose batches which prove
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.errors import CorruptionError
from kmq_storage import limits, paths
from tests.damage.told import tell_losses

MESSAGES, BATCH_ROWS = 100, 25
#: Digits of what a footer says of one batch, and those before the first one.
FACTS, HEAD = 120, 42


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose only topic has one run of eight batches."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        for name in ("a", "b"):
            queues.put_batch([name] * MESSAGES, [_message(name, n) for n in range(MESSAGES)])
        assert store.seal().segments == 1
        store.checkpoint()
    return tmp_path / "store"


def _message(name: str, number: int) -> bytes:
    return b"<%d in %s>" % (number, name.encode())


def _run(folder: Path) -> Path:
    (run,) = folder.glob("segments/*/0/*.arrow")
    return run


def _damage(run: Path, at: int) -> None:
    contents = run.read_bytes()
    run.write_bytes(contents[:at] + b"?" + contents[at + 1 :])


def _damage_message(folder: Path, number: int) -> None:
    run = _run(folder)
    _damage(run, run.read_bytes().index(_message("a", number)))


@pytest.mark.parametrize(("first", "number"), [(0, 60), (30, 60), (55, 60), (0, 0), (80, 99)])
def test_the_indexes_that_are_named_are_those_of_the_damaged_batch(
    folder: Path, first: int, number: int
):
    _damage_message(folder, number)
    batch = number // BATCH_ROWS * BATCH_ROWS
    with kmq.open(folder, read_only=True) as store:
        queues = store.keyed_queues("inbox")
        with pytest.raises(CorruptionError) as raised:
            queues.get("a", first, MESSAGES)
        told = raised.value.context
        behind = batch + BATCH_ROWS
        assert (told["first"], told["last"]) == (max(batch, first), behind - 1)
        assert f"go on from index {behind}" in str(raised.value)
        assert queues.get("a", behind, 99) == [_message("a", n) for n in range(behind, MESSAGES)]


_CALLS: dict[str, Callable[[kmq.Store], Any]] = {
    "get": lambda store: store.keyed_queues("inbox").get("a", 0, MESSAGES),
    "receive": lambda store: store.keyed_queues("inbox").receive("a", MESSAGES),
    "get_many": lambda store: store.keyed_queues("inbox").get_many(["a", "b"], 0, MESSAGES),
    "trim": lambda store: store.trim("inbox", {0: 10}),
}


@pytest.mark.parametrize("call", _CALLS)
def test_a_damaged_batch_is_told_by_topic_offsets_queues_and_file(folder: Path, call: str):
    _damage_message(folder, 60)
    with kmq.open(folder) as store, pytest.raises(CorruptionError) as raised:
        _CALLS[call](store)
    _expect_told(raised.value, folder)
    assert "(messages of the queues b'a' to b'a')" in str(raised.value)


@pytest.mark.parametrize("call", [*_CALLS, "names", "size"])
@pytest.mark.parametrize("hurt", ["directory", "footer", "all"])
def test_a_run_that_tells_nothing_of_its_queues_is_told_itself(folder: Path, call: str, hurt: str):
    run = _run(folder)
    if hurt == "all":
        run.unlink()
    else:
        contents = run.read_bytes()
        _damage(run, contents.rindex(b"ab") if hurt == "directory" else len(contents) - 20)
    calls = _CALLS | {
        "names": lambda store: store.keyed_queues("inbox").names(),
        "size": lambda store: store.keyed_queues("inbox").size("a"),
    }
    with kmq.open(folder) as store, pytest.raises(CorruptionError) as raised:
        calls[call](store)
    _expect_told(raised.value, folder)


def _expect_told(error: CorruptionError, folder: Path) -> None:
    told, file = error.context, str(_run_name(error))
    assert (told["topic"], told["partition"]) == ("inbox", 0)
    assert (told["start"], told["end"]) == (0, 2 * MESSAGES)
    assert file in str(error)
    assert file.startswith("segments/")
    assert "inbox-0, offsets 0 to 199: " in str(error)
    assert "kmq repair --drop-damaged" in str(error)
    assert "--1" not in str(error)


def _run_name(error: CorruptionError) -> object:
    return error.context["file"]


def test_a_put_whose_index_cant_be_told_says_that_it_is_stored(folder: Path):
    run = _run(folder)
    contents = run.read_bytes()
    run.unlink()
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        put = queues.put("a", b"more")
        with pytest.raises(CorruptionError, match="messages are stored, but their indexes"):
            put.result()
        with pytest.raises(CorruptionError, match="messages are stored, but their indexes"):
            list(queues.put_batch(["a"], [b"still more"]))
        run.write_bytes(contents)
        assert queues.get("a", MESSAGES, 9) == [b"more", b"still more"]
        assert put.result() == MESSAGES


@pytest.mark.parametrize("batch", [0, 3, 7])
def test_of_a_footer_that_is_damaged_only_the_batch_that_cant_prove_itself_is_lost(
    folder: Path, batch: int
):
    run = _run(folder)
    named = run.read_bytes().rindex(paths.segment_id(run.name).hex().encode())
    _damage(run, named + HEAD + batch * FACTS + 11)
    with kmq.open(folder) as store:
        assert store.repair(drop_damaged=True).ok
        queues = store.keyed_queues("inbox")
        tell_losses(queues, "a", "b")
        stored = [each for name in ("a", "b") for each in queues.get(name, 0, 999)]
        wanted = [_message(name, n) for name in ("a", "b") for n in range(MESSAGES)]
        first = batch * BATCH_ROWS
        assert stored == wanted[:first] + wanted[first + BATCH_ROWS :]
        assert store.verify(deep=True).ok
