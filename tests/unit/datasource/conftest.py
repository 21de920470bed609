"""What every test of the data source begins with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmq_spark.datasource import opening
from kmq_spark.datasource.warning import warn_once
from tests.spark.shop import Shop


@pytest.fixture(autouse=True)
def _warnings_anew() -> None:
    """A process says the same only once, and tests may share their words."""
    warn_once.cache_clear()


@pytest.fixture(autouse=True)
def _shops_close(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test opened: its maintenance would go on, and miss the folder."""
    opened: list[Shop] = []
    begin = Shop.__init__

    def noted(self: Shop, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(Shop, "__init__", noted)
    yield
    for each in opened:
        each.close()


@pytest.fixture(autouse=True)
def _logs_close() -> Iterator[None]:
    """Close what a worker would keep open: hundreds of stores that are gone, in one process."""
    yield
    while opening._opened:
        opening._opened.popitem()[1].log.close()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A store with topic `orders` of three partitions, unless a module has one of its own."""
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    return made
