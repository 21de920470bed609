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
