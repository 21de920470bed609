"""Finds failures of a stream that don't tell what is wrong, in whichever of Spark's calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.running import Collector, forget_last_commit, load, run
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def _nothing(_shop: Shop, _checkpoint: Path) -> None:
    pass


def _trim_a_planned_batch(shop: Shop, checkpoint: Path) -> None:
    forget_last_commit(checkpoint)
    shop.store.trim("orders", {0: 2})


def _begin_as_kafka(_shop: Shop, checkpoint: Path) -> None:
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    *head, _ = last.read_text().splitlines()
    last.write_text("\n".join([*head, '{"orders":{"0":3}}']))
    (last.parent / f".{last.name}.crc").unlink()


def _damage_a_segment(shop: Shop, _checkpoint: Path) -> None:
    shop.send("orders", 0, 3)
    shop.store.seal()
    for file in Path(shop.url).glob("segments/**/*.arrow"):
        file.write_bytes(file.read_bytes().replace(b"v4", b"v5"))


BROKEN: dict[str, tuple[Callable[[Shop, Path], None], dict[str, str], str]] = {
    "initialOffset": (_nothing, {"startingOffsets": '{"orders":{"*":11}}'}, "offset 11 is outside"),
    # Ours is the last word: Spark's own, behind it, would tell nothing.
    "getDefaultReadLimit": (_nothing, {"endingOffsets": "latest"}, r"has no end\n SQLSTATE"),
    "latestOffset": (_begin_as_kafka, {}, "not written by kmq: .* such as Kafka"),
    "partitions": (_trim_a_planned_batch, {}, "orders-0: offsets 0 to 3 .* 2 records are lost"),
    "read": (_damage_a_segment, {}, "checksum does not match"),
}


@pytest.mark.parametrize("call", BROKEN)
def test_a_failing_call_ends_the_query_with_its_reason(
    spark: SparkSession, shop: Shop, tmp_path: Path, call: str
) -> None:
    damage, options, message = BROKEN[call]
    checkpoint = tmp_path / "checkpoint"
    if damage is not _nothing:
        shop.send("orders", 0, 3)
        run(load(spark, shop), Collector(), checkpoint)
    damage(shop, checkpoint)
    with pytest.raises(StreamingQueryException, match=message):
        run(load(spark, shop, **options), Collector(), checkpoint)
