"""Segments that a newer kmq wrote. Finds ones that are read, or cut out, as if they were known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage import limits

NEWER = r"\.arrow has format 2; this kmq reads up to 1: install a newer kmq"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two segments, of which the second says that it has a newer format."""
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for version in (1, 2):
            producer.send_batch("t", [b"%d" % version] * 5).result()
            monkeypatch.setattr(limits, "FORMAT_VERSION", version)
            store.seal()
    monkeypatch.undo()
    return tmp_path / "s"


def _files(folder: Path) -> dict[str, bytes]:
    parts = (path for path in folder.rglob("*") if path.is_file() and path.name != "hint")
    return {str(path.relative_to(folder)): path.read_bytes() for path in parts}


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.read("t", start={0: 5}).read_all(),
        lambda store: store.verify(),
        lambda store: store.verify(deep=True),
        lambda store: store.compact("t"),
        lambda store: store.repair(),
        lambda store: store.repair(drop_damaged=True),
    ],
    ids=["read", "verify", "verify deep", "compact", "repair", "drop damaged"],
)
def test_a_segment_of_a_newer_format_is_refused_and_not_taken_for_damage(
    folder: Path, use: Callable[[kmq.Store], object]
):
    with kmq.open(folder, maintenance=False) as store:
        before = _files(folder)
        with pytest.raises(kmq.FormatVersionError, match=NEWER):
            use(store)
        assert _files(folder) == before
        assert store.read("t", end={0: 5}).read_all().num_rows == 5


def test_a_store_is_not_rebuilt_without_its_segments_of_a_newer_format(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    for part in ("log", "checkpoints", "pages"):
        shutil.rmtree(folder / part, ignore_errors=True)
    assert main(["--store", str(folder), "repair", "--drop-damaged"]) == 1
    assert "has format 2" in capsys.readouterr().err


def test_a_changed_byte_is_damage_and_no_newer_format(folder: Path):
    known, newer = sorted((folder / "segments").rglob("*.arrow"))
    newer.unlink()
    data = known.read_bytes()
    said = data.rindex(b"\1\0\0\0" + b"1\0")  # a text of one byte: the format, in the footer
    known.write_bytes(data[: said + 4] + b"2" + data[said + 5 :])
    with kmq.open(folder, maintenance=False) as store:
        assert [damage.start for damage in store.verify().damage] == [0, 5]
