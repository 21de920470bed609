"""`kmq bench`: what it tells, and what it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main

WAYS = ["send and wait", "send", "send_arrow", "poll", "consume_arrow"]


@pytest.mark.parametrize("records", [1, 1_200])
def test_every_record_is_sent_each_way_and_read_each_way(
    records: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = str(tmp_path / "store")
    words = ["bench", "--records", str(records), "--bytes", "10", "--durability", "os"]
    assert main([*words, "--json", "--store", store]) == 0
    figures = json.loads(capsys.readouterr().out)
    waited = min(records, 1_000)
    read = waited + 2 * records
    assert [each["what"] for each in figures] == WAYS
    assert [each["records"] for each in figures] == [waited, records, records, read, read]
    if records > 1:  # a single one may take seconds
        assert all(each["per_second"] > 0 for each in figures)
    assert [each["what"] for each in figures if each["p99_ms"] is not None] == ["send and wait"]


def test_its_topic_is_gone_afterwards_though_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails(*_arguments: object) -> None:
        raise kmq.UnavailableError("the disk is full")

    monkeypatch.setattr("kmq_spark.cli.bench._send_arrow", fails)
    assert main(["bench", "--records", "10", "--store", str(tmp_path / "store")]) == 1
    assert "the disk is full" in capsys.readouterr().err
    with kmq.open(tmp_path / "store", create=False) as store:
        assert store.topics() == []


def test_what_the_first_array_of_a_process_costs_is_not_measured(tmp_path: Path):
    pytest.importorskip("pandas")  # which pyarrow imports for its first array
    code = (
        "import sys; from kmq_spark.cli import bench, main;"
        "bench._send_arrow = lambda *_: print('pandas' in sys.modules);"
        f"main(['bench', '--records', '1', '--store', {str(tmp_path / 'store')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[0] == "True"


@pytest.mark.parametrize("wrong", [["--records", "0"], ["--bytes", "-1"], ["--durability", "no"]])
def test_a_wrong_size_is_refused_before_there_is_a_store(wrong: list[str], tmp_path: Path):
    assert main(["bench", *wrong, "--store", str(tmp_path / "store")]) == 2
    assert not (tmp_path / "store").exists()
