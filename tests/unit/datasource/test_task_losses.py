"""Finds a task that fails, or leaves records out without a word, where its records are gone.

They were there when it was planned: somebody trimmed or deleted them, and collected their files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kmq_storage.errors import DataLossError
from tests.spark.shop import Place, Shop
from tests.unit.datasource.engine import batch_reader


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A store whose topic `orders` has two segments, of offsets 0 to 3 and 4 to 9."""
    made = Shop(tmp_path / "shop")
    made.create("orders")
    for count in (4, 6):
        made.send("orders", count=count)
        made.store.seal()
    made.store.checkpoint()
    return made


def _planned(shop: Shop, fail: str) -> Callable[[], list[Place]]:
    """A read that was planned, and runs when it is called."""
    options = {"path": shop.url, "subscribe": "orders", "failOnDataLoss": fail}
    reader = batch_reader(options)
    tasks = reader.partitions()
    columns = ["topic", "partition", "offset"]
    return lambda: [
        place
        for task in tasks
        for batch in reader.read(task)
        for place in zip(*batch.select(columns).to_pydict().values(), strict=True)
    ]


def _trim(shop: Shop) -> None:
    shop.store.trim("orders", {0: 4})


def _cut_out(shop: Shop) -> None:
    shop.cut_out("orders", 0, 0, 4)


def _delete(shop: Shop) -> None:
    shop.delete("orders")


def _make_again(shop: Shop) -> None:
    shop.delete("orders")
    shop.create("orders")
    shop.send("orders", count=20)


LOSSES = [
    (_trim, r"offsets 0 to 10 \(next\) were to be read, the log holds 4 to 10: 4 records are", 6),
    (_cut_out, r"orders-0: offsets 0 to 3 were lost \(damaged\)", 6),
    (_delete, r"was deleted: 10 of its records went unread \(orders-0 from 0\)", 0),
    (_make_again, r"was deleted and made again: 10 of its records went unread", 0),
]


@pytest.mark.parametrize(("lose", "told", "kept"), LOSSES)
def test_what_is_collected_between_plan_and_run_is_data_loss(
    shop: Shop, lose: Callable[[Shop], None], told: str, kept: int
):
    read = _planned(shop, "true")
    _lose_and_collect(shop, lose)
    with pytest.raises(DataLossError, match=told):
        read()


@pytest.mark.parametrize(("lose", "told", "kept"), LOSSES)
def test_what_is_collected_between_plan_and_run_is_passed_over_where_that_is_wanted(
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Shop], None],
    told: str,
    kept: int,
):
    read = _planned(shop, "false")
    _lose_and_collect(shop, lose)
    assert read() == [("orders", 0, n) for n in range(10 - kept, 10)]
    assert caplog.text.count("failOnDataLoss=false: reading goes on") == 1


def _lose_and_collect(shop: Shop, lose: Callable[[Shop], None]) -> None:
    lose(shop)
    shop.store.checkpoint()
    assert shop.store.collect(grace=0).files
