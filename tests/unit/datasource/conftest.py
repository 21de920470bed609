"""What every test of the data source begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmq_spark.datasource.warning import warn_once
from tests.spark.shop import Shop


@pytest.fixture(autouse=True)
def _warnings_anew() -> None:
    """A process says the same only once, and tests may share their words."""
    warn_once.cache_clear()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A store with topic `orders` of three partitions, unless a module has one of its own."""
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    return made
