"""What docs/spark-streaming.md shows runs, and says what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kmq_spark as kmq
from tests.spark.shop import Shop
from tests.support.sources import ROOT

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "spark-streaming.md"


def test_the_examples_of_the_page_run(
    spark: SparkSession, shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.create("copies", 2)
    shop.create("counts")
    shop.send("orders", 0, 9)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    code = "\n".join(blocks).replace("data/shop", shop.url)
    code = code.replace("data/checkpoint", str(tmp_path / "checkpoint"))
    names = {"spark": spark, "kmq": kmq}
    try:
        exec(compile(code, PAGE.name, "exec"), names)
    finally:
        if "listener" in names:
            spark.streams.removeListener(names["listener"])
    assert "{'orders': {0: 0, 1: 0, 2: 0}}" in capsys.readouterr().out
    assert sorted(shop.values("copies")) == shop.values("orders")
    assert sorted(map(int, shop.values("counts"))) == [1, 1, 1, 1, 1, 2, 2]
    assert shop.committed("totals", "orders")[0] == shop.committed("copier", "orders")[0] == 9
