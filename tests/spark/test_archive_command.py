"""`kmq archive` as it is typed, in the session of the tests: what it writes, and what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kmq_spark.cli import archive as module
from kmq_spark.cli.command_line import main
from tests.spark.shop import Shop


def test_the_command_archives_what_is_new_and_goes_on_where_it_stopped(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # the other tests need it yet
    path = tmp_path / "lake"
    command = ["archive", str(path), "--store", shop.url]
    shop.send("orders", 0, 4)
    assert main([*command, "--topic", "orders", "--format", "parquet"]) == 0
    assert "orders-0: archived up to offset 4\n" in capsys.readouterr().out
    shop.send("orders", 0, 2)
    monkeypatch.setattr(module, "_with_delta", None)  # its jars would be fetched in vain
    assert main([*command, "--keep", "0"]) == 0
    assert "orders-0: archived up to offset 6\n" in capsys.readouterr().out
    assert spark.read.parquet(str(path)).count() == 6
    assert shop.store.describe_topic("orders").rows == 0


def test_the_command_tells_a_loss_in_one_line_with_its_own_option(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # the other tests need it yet
    command = ["archive", str(tmp_path / "lake"), "--store", shop.url]
    shop.create("bills")
    shop.send("orders", 0, 2)
    topics = ("--topic", "orders", "--topic", "bills")
    assert main([*command, *topics, "--format", "parquet"]) == 0
    shop.send("orders", 0, 6)
    shop.store.trim("orders", {0: 5})
    capsys.readouterr()
    assert main(command) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("kmq archive: orders-0: offsets 2 to 8 (next) were to be read")
    assert told.endswith("3 records are lost; use --skip-lost to go on with what is there")
    shop.delete("bills")
    assert main([*command, "--skip-lost"]) == 1
    assert "name the other topics" in capsys.readouterr().err
    assert main([*command, "--skip-lost", "--topic", "orders"]) == 0
    assert "3 records were gone before they were archived" in capsys.readouterr().out
