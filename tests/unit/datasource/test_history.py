"""Finds records that a read over an archive and the log loses, repeats or reorders, without a JVM.

The archive is written from what the store reads, as the job does it, batch by batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.incremental import incremental
from kmq_spark.datasource.planning import history
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.reading import ArchivedRange
from kmq_storage.errors import DataLossError, NotFoundError
from tests.spark.shop import Place, Shop
from tests.support.s3 import S3Server
from tests.unit.archive.made import upload
from tests.unit.datasource.archiver import GROUP, Archiver, options_of, reader_of
from tests.unit.datasource.engine import Checkpoint, Query, Sink, batch_reader
from tests.unit.datasource.spark_stand_in import Frame, SparkStandIn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    yield made
    made.close()


@pytest.fixture
def archiver(shop: Shop, tmp_path: Path) -> Archiver:
    return Archiver(shop, tmp_path / "lake")


def _read(reader: KmqBatchReader) -> list[Place]:
    return _places(reader, reader.partitions())


def _places(reader: KmqBatchReader, tasks: Iterable[InputPartition]) -> list[Place]:
    columns = ["topic", "partition", "offset"]
    batches = [batch for task in tasks for batch in reader.read(task)]
    return [
        place
        for batch in batches
        for place in zip(*batch.select(columns).to_pydict().values(), strict=True)
    ]


def _send(shop: Shop, count: int) -> list[Place]:
    return [place for partition in (0, 1) for place in shop.send("orders", partition, count)]


def test_an_archive_and_the_log_are_read_as_one_at_every_step_of_the_job(
    shop: Shop, archiver: Archiver
):
    places = _send(shop, 10)
    archiver.run()
    places += _send(shop, 10)
    for step in (archiver.write, archiver.commit, archiver.trim):
        assert sorted(_read(reader_of(archiver))) == sorted(places)
        step()
    assert sorted(_read(reader_of(archiver))) == sorted(places)


def test_what_is_trimmed_and_collected_between_plan_and_run_comes_from_the_archive(
    shop: Shop, archiver: Archiver
):
    places = _send(shop, 10)
    shop.store.seal()
    shop.store.checkpoint()
    reader = reader_of(archiver)
    tasks = reader.partitions()
    archiver.run()
    shop.store.checkpoint()
    assert shop.store.collect(grace=0).files
    assert shop.store.offsets("orders") == {0: (10, 10), 1: (10, 10)}
    without = batch_reader({"path": shop.url, "subscribe": "orders"})
    with pytest.raises(DataLossError):
        _places(without, tasks)
    assert sorted(_places(reader, tasks)) == sorted(places)


def test_bounds_by_offset_and_by_time_reach_into_the_archive(shop: Shop, archiver: Archiver):
    _send(shop, 5)
    _send(shop, 5)
    archiver.run()
    _send(shop, 5)
    starting = '{"orders": {"0": 3, "1": 12}}'
    ending = '{"orders": {"0": 7, "1": -1}}'
    found = _read(reader_of(archiver, startingOffsets=starting, endingOffsets=ending))
    assert sorted(found) == [("orders", 0, n) for n in range(3, 7)] + [
        ("orders", 1, n) for n in range(12, 15)
    ]
    archived = shop.store.read("orders", start={0: 10, 1: 10}).read_all()
    assert archived.num_rows == 10  # the log holds the newest only


def test_a_time_before_the_log_begins_is_found_in_the_archive(shop: Shop, archiver: Archiver):
    _send(shop, 5)
    second = _send(shop, 5)
    times = shop.store.read("orders", start={0: 5, 1: 5}).read_all()["timestamp"]
    archiver.run()
    third = _send(shop, 5)
    since = min(times.to_pylist()).isoformat()
    found = _read(reader_of(archiver, startingTimestamp=since))
    assert sorted(found) == sorted(second + third)


@pytest.mark.parametrize("far", [2**63 - 1, -(2**63 - 1)])
def test_times_that_no_calendar_has_are_after_or_before_everything(
    shop: Shop, archiver: Archiver, far: int
):
    places = _send(shop, 5)
    archiver.run()
    places += _send(shop, 2)
    begin = _read(
        reader_of(archiver, startingTimestamp=str(far), startingOffsetsByTimestampStrategy="latest")
    )
    end = _read(reader_of(archiver, endingTimestamp=str(far)))
    assert sorted(begin) == ([] if far > 0 else sorted(places))
    assert sorted(end) == (sorted(places) if far > 0 else [])


def test_a_calendars_first_moment_is_looked_for_as_it_is():
    first = datetime.min.replace(tzinfo=UTC)
    assert history._in_calendar(-62_135_596_800_000_000) == first


def test_history_that_is_not_to_be_found_without_the_archives_group_is_a_loss(
    shop: Shop, archiver: Archiver
):
    _send(shop, 10)
    archiver.run()
    places = _send(shop, 2)
    shop.store.delete_group(GROUP)
    with pytest.raises(DataLossError, match=rf"log holds 10 to 12, the archive nothing .*{GROUP}"):
        _read(reader_of(archiver))
    assert sorted(_read(reader_of(archiver, failOnDataLoss="false"))) == sorted(places)
    stream, sink = options_of(archiver, startingOffsets="earliest", failOnDataLoss="false"), Sink()
    Query(stream, Checkpoint(), sink).all_available()
    assert sorted(sink.places) == sorted(places)
    archiver.commit()
    assert len(_read(reader_of(archiver))) == 24


def test_a_stream_goes_from_the_archive_into_the_log(shop: Shop, archiver: Archiver):
    places = _send(shop, 10)
    archiver.run()
    places += _send(shop, 10)
    checkpoint, sink = Checkpoint(), Sink()
    options = options_of(archiver, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    for _ in range(3):  # restarted after every batch
        Query(options, checkpoint, sink).trigger()
    archiver.run()
    Query(options, checkpoint, sink).all_available()
    assert all(len(rows) <= 6 for rows in sink.batches.values())
    assert sorted(sink.places) == sorted(places)


def test_a_batch_job_of_a_group_reaches_into_the_archive(shop: Shop, archiver: Archiver):
    sent = _send(shop, 5)
    shop.commit("behind", "orders", {0: 2})
    archiver.run()
    sent += _send(shop, 2)
    wanted = {"behind": [each for each in sent if each[1] or each[2] >= 2], "new": sent}
    for group, expected in wanted.items():
        spark = cast("SparkSession", SparkStandIn())
        given = {"subscribe": "orders", "archive": str(archiver.path)}
        with incremental(spark, shop.url, group, **given) as new:
            columns = ("topic", "partition", "offset")
            batches = cast("Frame", new.df).batches()
            rows = [row for each in batches for row in each.select(columns).to_pylist()]
        assert sorted(tuple(row.values()) for row in rows) == sorted(expected)
        assert shop.committed(group, "orders") == {0: 7, 1: 7}


def test_batch_jobs_that_end_in_the_archive_pass_over_nothing(shop: Shop, archiver: Archiver):
    places = _send(shop, 10)
    archiver.run()
    places += _send(shop, 5)
    found: list[Place] = []
    given = {"subscribe": "orders", "archive": str(archiver.path), "maxOffsetsPerTrigger": 8}
    while len(found) < len(places):
        spark = cast("SparkSession", SparkStandIn())
        with incremental(spark, shop.url, "few", **given) as new:
            columns = [
                each.select(["topic", "partition", "offset"]).to_pydict().values()
                for each in cast("Frame", new.df).batches()
            ]
        more = [place for each in columns for place in zip(*each, strict=True)]
        assert more, "the group passed over records"
        found += more
    assert sorted(found) == sorted(places)


def test_a_group_whose_query_is_in_the_archive_goes_on_there_without_its_checkpoint(
    shop: Shop, archiver: Archiver
):
    places = _send(shop, 10)
    archiver.run()
    places += _send(shop, 5)
    options = options_of(archiver, startingOffsets="earliest", group="copier")
    first, sink = Query({**options, "maxOffsetsPerTrigger": "6"}, Checkpoint(), Sink()), Sink()
    first.trigger()
    assert shop.committed("copier", "orders") == {0: 0, 1: 0}
    first.trigger()
    assert shop.committed("copier", "orders") == {0: 3, 1: 3}
    first.die()
    second = Query(options, Checkpoint(), sink)
    second.all_available()
    second.die()
    assert sorted(sink.places) == [place for place in sorted(places) if place[2] >= 3]


def test_what_neither_has_is_a_loss(shop: Shop, archiver: Archiver):
    _send(shop, 10)
    archiver.run()
    _send(shop, 10)
    shop.store.trim("orders", {0: 15})
    with pytest.raises(DataLossError, match="orders-0: offsets 10 to 20"):
        reader_of(archiver).partitions()
    kept = _read(reader_of(archiver, failOnDataLoss="false"))
    assert [n for _, p, n in kept if p == 0] == [*range(10), *range(15, 20)]


@pytest.fixture
def behind(shop: Shop, archiver: Archiver) -> Checkpoint:
    """Of a stream at 2, where the archive has 5 to 9 and the log 10 to 11."""
    checkpoint = Checkpoint()
    _send(shop, 2)
    Query(options_of(archiver, startingOffsets="earliest"), checkpoint, Sink()).all_available()
    _send(shop, 3)
    archiver.begin(5)
    _send(shop, 5)
    archiver.run()
    _send(shop, 2)
    return checkpoint


def test_what_was_lost_before_it_was_archived_is_a_loss_of_every_later_read(
    shop: Shop, archiver: Archiver
):
    places = _send(shop, 10)
    archiver.run()
    archiver.lose(0, 3, 5)
    for reader in (reader_of(archiver), reader_of(archiver, startingOffsets='{"orders":{"*":4}}')):
        with pytest.raises(DataLossError, match=r"orders-0: offsets \d to 4 were lost before they"):
            reader.partitions()
    assert len(_read(reader_of(archiver, startingOffsets='{"orders":{"*":5}}'))) == 10
    assert sorted(_read(reader_of(archiver, failOnDataLoss="false"))) == places
    query = Query(
        options_of(archiver, startingOffsets="earliest", failOnDataLoss="false"),
        Checkpoint(),
        Sink(),
    )
    query.all_available()
    assert query.reader.reportLatestOffset()["#kmq"]["lost"] == 2


def test_a_stream_before_the_beginning_of_the_archive_loses_only_what_is_below_it(
    archiver: Archiver, behind: Checkpoint
):
    sink = Sink()
    options = options_of(archiver, failOnDataLoss="false", maxOffsetsPerTrigger="2")
    query = Query(options, behind, sink)
    query.all_available()
    assert sorted(sink.places) == [("orders", p, n) for p in (0, 1) for n in range(5, 12)]
    assert all(len(rows) <= 2 for rows in sink.batches.values())
    assert query.reader.reportLatestOffset()["#kmq"]["lost"] == 6


def test_what_is_lost_below_an_archive_is_told_with_what_it_has(
    archiver: Archiver, behind: Checkpoint
):
    told = "offsets 2 to 5 .next. .* the log holds 10 to 12, the archive 5 to 10: 3 records"
    with pytest.raises(DataLossError, match=told):
        Query(options_of(archiver), behind, Sink()).all_available()
    with pytest.raises(DataLossError, match=told):
        reader_of(archiver, startingOffsets='{"orders": {"*": 2}}').partitions()


def test_limits_of_tasks_hold_in_the_archive_and_in_the_log_together(
    shop: Shop, archiver: Archiver
):
    places = _send(shop, 100)
    archiver.run()
    places += _send(shop, 20)
    for options, fewest in (
        ({"maxRecordsPerPartition": "30"}, 10),
        ({"minPartitions": "12"}, 12),
        ({"maxBytesPerPartition": "1k"}, 4),
        ({"maxBytesPerPartition": "1k", "maxRecordsPerPartition": "30"}, 10),
    ):
        reader = reader_of(archiver, **options)
        tasks = [_places(reader, [task]) for task in reader.partitions()]
        assert len(tasks) >= fewest, options
        if "maxRecordsPerPartition" in options:
            assert max(map(len, tasks)) <= 30
        if "minPartitions" in options:
            assert len(tasks) <= 14
        assert sorted(place for task in tasks for place in task) == sorted(places)


def test_a_task_has_no_more_of_an_archive_in_memory_than_there_is_room_for(
    shop: Shop, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
):
    places = [place for _ in range(5) for place in _send_and_archive(archiver, 20)]
    reader = reader_of(archiver, minPartitions="1")
    tasks = reader.partitions()
    held: list[int] = []
    read = ArchivedRange.read

    def read_and_note(part: ArchivedRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        held.append(part.bytes)
        return read(part, schema)

    monkeypatch.setattr(ArchivedRange, "read", read_and_note)
    monkeypatch.setattr(history, "_RANGE_BYTES_MAX", 2_000)
    assert sorted(_places(reader, tasks)) == sorted(places)
    assert len(tasks) < len(held)
    assert max(held) <= 2_000


def _send_and_archive(archiver: Archiver, count: int) -> list[Place]:
    places = _send(archiver.shop, count)
    archiver.run()
    return places


def test_a_limit_of_bytes_weighs_what_is_only_in_the_archive_as_it_is_in_memory(
    shop: Shop, archiver: Archiver
):
    with shop.store.producer() as producer:
        for n in range(40):
            value = Random(n).randbytes(50) * 1_000  # the files hide what it weighs
            producer.send("orders", value, partition=n % 2).result(30)
    archiver.run()
    sink = Sink()
    options = options_of(archiver, startingOffsets="earliest", maxBytesPerTrigger="500k")
    Query(options, Checkpoint(), sink).all_available()
    sizes = [len(rows) for rows in sink.batches.values()]
    assert sum(sizes) == 40
    assert 5 <= max(sizes) <= 10


def test_an_archive_in_a_bucket_is_reached_as_the_store_in_a_bucket_is(
    moto: S3Server, tmp_path: Path
):
    shop = Shop(moto.new_url(), moto.options())
    shop.create("orders", 2)
    archiver, lake = Archiver(shop, tmp_path / "lake"), ArchivePlace(moto.new_url(), moto.options())
    places = _send(shop, 3)
    archiver.run()
    upload(archiver.path, lake)
    places += _send(shop, 2)
    given = {f"storage.{name}": value for name, value in moto.options().items()}
    reader = reader_of(archiver, archive=lake.url, **given)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    assert sorted(_places(reader, tasks)) == sorted(places)
    shop.close()


def test_an_archive_that_is_not_there_is_an_error(shop: Shop, archiver: Archiver):
    reader = reader_of(archiver, archive=str(archiver.path / "nowhere"))
    with pytest.raises(NotFoundError, match="Archive"):
        reader.partitions()
