"""`kmq maintain`: once, and until it is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main
from tests.support.damage import flip


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a topic of three records."""
    url = str(tmp_path / "store")
    with kmq.open(url, maintenance=False) as store:
        store.create_topic("orders")
        store.producer().send_batch("orders", [b"1", b"2", b"3"]).result()
    return url


def test_maintain_does_what_is_due_and_tells(url: str, capsys: pytest.CaptureFixture[str]):
    with kmq.open(url, maintenance=False) as store:
        store.trim("orders", {0: 1})
        store.seal()
    assert main(["maintain", "--json", "--store", url]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sealed"]["rows"] == 0  # nothing more is old or large enough
    with kmq.open(url, maintenance=False) as store:
        assert store.offsets("orders") == {0: (1, 3)}


def test_maintain_tells_of_no_checkpoint_that_is_not_there(
    url: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["maintain", "--store", url]) == 0
    assert "no checkpoint yet" in capsys.readouterr().out
    with kmq.open(url, maintenance=False) as store:
        written = store.checkpoint()
        store.producer().send("orders", b"4").result()
        assert store.maintain().checkpoint.lsn == written.lsn
    assert main(["maintain", "--store", url]) == 0
    assert f"checkpoint at commit {written.lsn}," in capsys.readouterr().out


def test_maintain_goes_on_until_it_is_interrupted(url: str):
    words = [sys.executable, "-m", "kmq_spark.cli", "maintain", "--watch", "--interval", "0.01"]
    with subprocess.Popen([*words, "--store", url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert all(line.startswith("sealed 0 records") for line in told)


def test_a_watcher_outlives_an_error_that_may_pass(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    maintain = kmq.Store.maintain
    troubles = [KeyboardInterrupt(), None, kmq.UnavailableError("the store is away")]

    def troubled(store: kmq.Store) -> object:
        trouble = troubles.pop()
        if trouble is not None:
            raise trouble
        return maintain(store)

    monkeypatch.setattr(kmq.Store, "maintain", troubled)
    assert main(["maintain", "--watch", "--interval", "0", "--store", url]) == 130
    printed = capsys.readouterr()
    assert "the store is away; looking again" in printed.err
    assert printed.out.startswith("sealed 0 records")


def _commit_positions(log: bytes) -> list[int]:
    """Where the frames begin in a log file."""
    return [at for at in range(0, len(log), 64) if log[at : at + 4] == b"KMQ1"]


def test_whoever_looks_after_a_store_with_a_damaged_commit_is_told_both_ways_out(
    url: str, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        producer.send("orders", b"4").result()
    (log, *_) = sorted((Path(url) / "log").glob("*.log"))
    directory = _commit_positions(log.read_bytes())[1] + 128
    flip(log, directory)
    said = {}
    for command in ("stats", "maintain", "verify"):
        main([command, "--store", url])
        told = capsys.readouterr()
        said[command] = told.out + told.err
    assert all("damage" in told and "--drop-damaged" in told for told in said.values())
    assert all("from a copy" in told for told in said.values())
    flip(log, directory)  # as from a copy: nothing is lost, and maintenance goes on
    assert main(["maintain", "--store", url]) == 0
    assert main(["stats", "--store", url]) == 0
    assert "damage" not in capsys.readouterr().out
    with kmq.open(url, read_only=True) as store:
        assert store.read("orders").read_all()["value"].to_pylist() == [b"1", b"2", b"3", b"4"]


@pytest.mark.filterwarnings("always::kmq_spark.KmqWarning")
def test_who_asks_about_a_queue_of_a_damaged_store_is_warned(
    url: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["queue", "create", "work", "orders", "--store", url]) == 0
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        producer.send("orders", b"4").result()
    (log, *_) = sorted((Path(url) / "log").glob("*.log"))
    flip(log, _commit_positions(log.read_bytes())[-1] + 20)
    for words in (["list"], ["describe", "work"]):
        assert main(["queue", *words, "--store", url]) == 0
        assert "are damaged" in capsys.readouterr().err


def test_maintenance_goes_on_once_damage_was_given_up(url: str):
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        producer.send("orders", b"4").result()
    (log, *_) = sorted((Path(url) / "log").glob("*.log"))
    flip(log, _commit_positions(log.read_bytes())[1] + 128)
    assert main(["maintain", "--store", url]) == 1
    assert main(["repair", "--drop-damaged", "--store", url]) == 0
    assert main(["maintain", "--store", url]) == 0
