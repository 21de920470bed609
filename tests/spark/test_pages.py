"""What the pages on Spark show runs, and says what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kmq_spark as kmq
from tests.spark.shop import Shop
from tests.support.sources import ROOT

pytestmark = pytest.mark.spark


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_runs_from_its_first_line_to_its_last(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(_blocks("README.md", "python")).replace('"data/', f'"{tmp_path}/')
    exec(compile(code, "README.md", "exec"), {})
    assert "|[61 6C 69 63 65]|    1|" in capsys.readouterr().out
    with kmq.open(tmp_path / "shop", create=False) as store:
        assert store.describe_topic("orders-copy").rows == store.describe_topic("orders").rows == 5


def test_the_example_of_the_page_on_reading_runs(
    spark: SparkSession, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.send("orders", 0, 6)
    shop.send("orders", 1, 2)
    (block,) = _blocks("docs/spark-reading.md", "python")
    code = block.replace("data/shop", shop.url)
    exec(compile(code, "spark-reading.md", "exec"), {"spark": spark})
    shown = re.findall(r"^\|(k\d.*)\|$", capsys.readouterr().out.replace(" ", ""), re.MULTILINE)
    assert sorted(shown) == ["k0|v7|1|1", "k5|v5|0|5", "k6|v6|1|0"]


def test_the_examples_of_the_page_on_streams_run(
    spark: SparkSession, shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.create("copies", 2)
    shop.create("counts")
    shop.send("orders", 0, 9)
    code = "\n".join(_blocks("docs/spark-streaming.md", "python")).replace("data/shop", shop.url)
    code = code.replace("data/checkpoint", str(tmp_path / "checkpoint"))
    names = {"spark": spark, "kmq": kmq}
    try:
        exec(compile(code, "spark-streaming.md", "exec"), names)
    finally:
        if "listener" in names:
            spark.streams.removeListener(names["listener"])
    assert "{'orders': {0: 0, 1: 0, 2: 0}}" in capsys.readouterr().out
    assert sorted(shop.values("copies")) == shop.values("orders")
    assert sorted(map(int, shop.values("counts"))) == [1, 1, 1, 1, 1, 2, 2]
    assert shop.committed("totals", "orders")[0] == shop.committed("copier", "orders")[0] == 9


def test_the_examples_of_the_page_on_tables_run(
    spark: SparkSession, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.send("orders", 0, 5)
    shop.store.seal()
    shop.commit("billing", "orders", {0: 3})
    code = "\n".join(_blocks("docs/spark-tables.md", "python")).replace("data/shop", shop.url)
    exec(compile(code, "spark-tables.md", "exec"), {"spark": spark})
    assert "|billing|" in capsys.readouterr().out.replace(" ", "")
    (block,) = _blocks("docs/spark-tables.md", "sql")
    try:
        *before, query = block.replace("data/shop", shop.url).split(";")
        for statement in before:
            spark.sql(statement)
        ((topic, segments, size),) = spark.sql(query).collect()
        assert (topic, segments) == ("orders", 1)
        assert size > 0
    finally:
        spark.catalog.dropTempView("segments")
