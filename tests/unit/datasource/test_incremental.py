"""Finds batch jobs of a group that pass over records, or take those of another topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage

import kmq_spark as kmq
from kmq_spark.datasource.incremental import Incremental, incremental
from kmq_spark.datasource.writer import KmqBatchWriter
from kmq_storage.errors import DataLossError, IllegalStateError, InvalidRequestError, NotFoundError
from tests.spark.shop import Shop
from tests.support.s3 import S3Server
from tests.unit.datasource.spark_stand_in import Frame, SparkStandIn


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop")
    made.create("orders")
    made.create("copies")
    made.send("orders", count=3)
    yield made
    made.close()


SPARK = cast("SparkSession", SparkStandIn())


def _job(shop: Shop, **options: object) -> Incremental:
    return incremental(SPARK, shop.url, "g", subscribe="orders", **options)


def _values(new: Incremental) -> list[bytes]:
    batches = cast("Frame", new.df).batches()
    return [value for each in batches for value in each.column("value").to_pylist()]


def test_a_bucket_that_only_storage_options_open_is_read_and_written(moto: S3Server) -> None:
    url, given = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=given) as store:
        for topic in ("orders", "copies"):
            store.create_topic(topic)
        with store.producer() as producer:
            producer.send("orders", b"one")
        with incremental(SPARK, url, "g", storage_options=given, subscribe="orders") as new:
            new.write(new.df, topic="copies")
        assert store.offsets("copies") == {0: (0, 1)}
        assert store.describe_group("g").committed == {"orders": {0: 1}}


def _make_again(shop: Shop) -> None:
    shop.delete("orders")
    shop.create("orders")
    shop.send("orders", count=5)


def test_a_topic_that_was_made_again_after_the_job_began_is_no_part_of_it(shop: Shop) -> None:
    with pytest.raises(DataLossError, match="made again"), _job(shop) as new:
        _make_again(shop)
        new.write(new.df, topic="copies")
    assert (shop.values("copies"), shop.committed("g", "orders")) == ([], {})
    with _job(shop, failOnDataLoss=False) as new:
        _make_again(shop)
        assert _values(new) == []
    with _job(shop) as new:
        new.write(new.df, topic="copies")
    assert shop.values("copies") == shop.values("orders")


def test_a_topic_that_was_deleted_after_the_job_began_is_no_part_of_it(shop: Shop) -> None:
    shop.create("returns")
    shop.send("returns", count=2)
    with incremental(SPARK, shop.url, "g", subscribe="orders,returns", failOnDataLoss=False) as new:
        shop.delete("returns")
        new.write(new.df, topic="copies")
    assert (shop.values("copies"), shop.committed("g", "orders")) == (shop.values("orders"), {0: 3})


def test_a_write_that_failed_leaves_the_group_though_the_job_goes_on(shop: Shop) -> None:
    with _job(shop) as new, suppress(NotFoundError):
        new.write(new.df, topic="nowhere")
    assert shop.committed("g", "orders") == {}
    with _job(shop) as new:
        with suppress(NotFoundError):
            new.write(new.df, topic="nowhere")
        new.write(new.df, topic="copies")
    assert shop.committed("g", "orders") == {0: 3}
    assert shop.values("copies") == shop.values("orders")


@contextmanager
def _lost_answers() -> Iterator[None]:
    """Every write is stored, and fails for whoever called it."""
    commit = KmqBatchWriter.commit

    def answer_lost(writer: KmqBatchWriter, messages: list[WriterCommitMessage | None]) -> None:
        commit(writer, messages)
        raise OSError("the answer was lost")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="lost"):
        patch.setattr(KmqBatchWriter, "commit", answer_lost)
        yield


def test_a_write_that_is_tried_again_though_it_was_stored_is_stored_once(shop: Shop) -> None:
    with _job(shop) as new:
        with _lost_answers():
            new.write(new.df, topic="copies")
        new.write(new.df, topic="copies")
        with pytest.raises(IllegalStateError, match="one write moves the group"):
            new.write(new.df, topic="copies")
    assert shop.values("copies") == shop.values("orders")
    shop.send("orders", count=2)
    with new:
        new.write(new.df, topic="copies")
    assert shop.values("copies") == shop.values("orders")


def test_a_write_of_a_job_with_nothing_to_read_is_stored_once_in_each_job(shop: Shop) -> None:
    other = cast("Frame", SPARK.read.format("kmq").option("subscribe", "orders").load(shop.url))
    with _job(shop):
        pass
    for job in (_job(shop), _job(shop)):
        with job as new:
            with _lost_answers():
                new.write(other, topic="copies")
            new.write(other, topic="copies")
    assert shop.values("copies") == shop.values("orders") * 2


def test_a_write_outside_of_its_block_is_told_where_it_belongs(shop: Shop) -> None:
    with _job(shop) as new:
        frame = new.df
    for job in (new, _job(shop)):
        with pytest.raises(IllegalStateError, match="inside of the `with` block"):
            job.write(frame, topic="copies")
    assert shop.values("copies") == []


@pytest.mark.parametrize("option", [{"txnAppId": "job"}, {"TXNVERSION": 7}])
def test_a_version_is_refused_that_could_leave_out_what_the_group_moves_over(
    shop: Shop, option: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError, match="the group says"), _job(shop) as new:
        new.write(new.df, topic="copies", **option)
    assert shop.committed("g", "orders") == {}


def test_a_store_is_named_by_a_path_as_well_and_by_nothing_else(shop: Shop) -> None:
    with incremental(SPARK, Path(shop.url), "g", subscribe="orders") as new:
        assert len(_values(new)) == 3
    with pytest.raises(InvalidRequestError, match="store 5 is not a path or URL"):
        incremental(SPARK, cast("str", 5), "g", subscribe="orders")


def test_a_job_that_is_entered_again_begins_anew(shop: Shop) -> None:
    job = _job(shop)
    with job as new, suppress(NotFoundError):
        new.write(new.df, topic="nowhere")
    for _ in range(2):
        with job as new:
            new.write(new.df, topic="copies")
    assert shop.values("copies") == shop.values("orders")


@pytest.mark.parametrize("group", [5, None, " g "])
def test_a_group_is_named_by_text_as_it_stands(shop: Shop, group: Any) -> None:
    with pytest.raises(InvalidRequestError, match="group name"):
        incremental(SPARK, shop.url, group, subscribe="orders")
