"""Streams over a store that a backup took the place of, from before its topic got partitions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kmq_spark as kmq
from kmq_spark.errors import DataLossError
from kmq_spark.listener import KmqListener
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Crash, Stream


class _Restored:
    """A query that read two partitions of a topic, of which the restored backup has one."""

    def __init__(self, root: Path, *, planned: bool, **options: str) -> None:
        shop = Shop(root / "shop")
        shop.create("orders")
        shop.close()
        shutil.copytree(root / "shop", root / "backup")
        shop = Shop(root / "shop")
        shop.grow("orders", 2)
        shop.send("orders", 1, 4)
        self.stream = Stream(shop, startingOffsets="earliest", **options)
        query = self.stream.start()
        query.all_available()
        if planned:  # and not run
            shop.send("orders", 1)
            query.trigger(Crash.AFTER_WAL)
        latest = json.dumps(query.reader.reportLatestOffset())
        self.source = SimpleNamespace(
            endOffset=self.stream.checkpoint.ends[-1], latestOffset=latest
        )
        self.stream.stop()
        shop.close()
        shutil.rmtree(root / "shop")
        shutil.copytree(root / "backup", root / "shop")
        self.shop = self.stream.shop = Shop(root / "shop")


@pytest.fixture(params=["finished", "planned"])
def planned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "planned")


@pytest.fixture(params=["a group", "no group"])
def group(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"group": "g"} if request.param == "a group" else {}


@pytest.fixture
def restored(tmp_path: Path, planned: bool, group: dict[str, str]) -> Iterator[_Restored]:
    made = _Restored(tmp_path, planned=planned, **group)
    yield made
    made.stream.stop()
    made.shop.close()


def test_a_query_that_was_reading_a_partition_that_a_backup_lacks_is_told_so(
    restored: _Restored,
) -> None:
    with pytest.raises(DataLossError, match=r"orders-1 at 4.*last partition is 0: it was set back"):
        restored.stream.start().all_available()


def test_a_partition_that_is_made_again_after_a_backup_is_read_from_its_start(
    restored: _Restored,
) -> None:
    restored.stream.start(failOnDataLoss="false").all_available()
    read = len(restored.stream.sink.places)
    restored.shop.grow("orders", 2)
    places = restored.shop.send("orders", 1, 2)
    restored.stream.start().all_available()
    assert restored.stream.sink.places[read:] == places


def test_lag_and_listener_pass_over_a_partition_that_a_backup_lacks(restored: _Restored) -> None:
    restored.shop.send("orders", 0, 3)
    progress = SimpleNamespace(
        id="q",
        name=None,
        batchId=1,
        numInputRows=4,
        processedRowsPerSecond=1.0,
        sources=[restored.source],
    )
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: 3}}
    listener = KmqListener()
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    behind = listener.latest["q"].behind
    assert behind is not None
    assert behind.records == 3
