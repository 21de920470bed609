"""A store of its own for each test of the data source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A store with a topic `orders` of three partitions."""
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    yield made
    made.close()
