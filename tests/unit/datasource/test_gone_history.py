"""Finds reads that pass over what somebody took out of an archive, without a JVM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kmq_spark.lake import reading
from kmq_spark.lake.record import DELTA, PARQUET
from kmq_storage.errors import DataLossError
from tests.spark.shop import Place, Shop
from tests.unit.datasource.archiver import Archiver, options_of, reader_of
from tests.unit.datasource.engine import Checkpoint, Query, Sink

FORMATS = (DELTA, PARQUET)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    yield made
    made.close()


@pytest.fixture(params=FORMATS)
def archiver(request: pytest.FixtureRequest, shop: Shop, tmp_path: Path) -> Archiver:
    """Of three batches with offsets 0 to 4, 5 to 9 and 10 to 14; the log has 15 to 16."""
    made = Archiver(shop, tmp_path / "lake", file_format=request.param)
    for _ in range(3):
        _send(shop, 5)
        made.run()
    _send(shop, 2)
    return made


def _send(shop: Shop, count: int) -> list[Place]:
    return [place for partition in (0, 1) for place in shop.send("orders", partition, count)]


def _offsets(archiver: Archiver, **more: str) -> list[int]:
    """Those of a batch read, which are the same in both partitions."""
    reader, found = reader_of(archiver, **more), ([], [])
    for task in reader.partitions():
        for batch in reader.read(task):
            for partition, offset in zip(batch["partition"], batch["offset"], strict=True):
                found[partition.as_py()].append(offset.as_py())
    assert sorted(found[0]) == sorted(found[1])
    return sorted(found[0])


def _lose(archiver: Archiver, batch: int) -> None:
    """Somebody deletes the files of a batch."""
    if (archiver.path / "_delta_log").exists():
        DeltaTable(archiver.path).delete(f"offset between {5 * batch} and {5 * batch + 4}")
    else:
        shutil.rmtree(archiver.path / f"batch=cccccccc-{batch:010d}")


def _counted(archiver: Archiver, checkpoint: Checkpoint | None = None) -> tuple[list[Place], int]:
    """The places that a stream gives with failOnDataLoss=false, and the losses it counts."""
    sink = Sink()
    options = options_of(archiver, startingOffsets="earliest", failOnDataLoss="false")
    query = Query({**options, "maxOffsetsPerTrigger": "7"}, checkpoint or Checkpoint(), sink)
    query.all_available()
    return sorted(sink.places), query.reader.reportLatestOffset()["#kmq"]["lost"]


def test_what_is_gone_from_the_end_of_an_archive_is_a_loss(archiver: Archiver):
    _lose(archiver, 2)
    told = r"orders-0: offsets 10 to 14 are in no file of archive .*lake any more; bring its files"
    with pytest.raises(DataLossError, match=told):
        reader_of(archiver).partitions()
    with pytest.raises(DataLossError, match=told):
        Query(
            options_of(archiver, startingOffsets="earliest"), Checkpoint(), Sink()
        ).all_available()
    kept = [*range(10), 15, 16]
    assert _offsets(archiver, failOnDataLoss="false") == kept
    assert _counted(archiver) == ([("orders", p, n) for p in (0, 1) for n in kept], 10)


def test_a_table_that_was_restored_has_a_hole_also_when_its_job_has_gone_on(
    shop: Shop, tmp_path: Path
):
    archiver = Archiver(shop, tmp_path / "lake")
    for _ in range(3):
        _send(shop, 5)
        archiver.run()
    DeltaTable(archiver.path).restore(0)
    _send(shop, 5)
    archiver.run()
    with pytest.raises(DataLossError, match="orders-0: offsets 5 to 14 are in no file"):
        reader_of(archiver).partitions()
    assert _offsets(archiver, failOnDataLoss="false") == [*range(5), *range(15, 20)]
    assert _offsets(archiver, startingOffsets='{"orders": {"*": 15}}') == [*range(15, 20)]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_in_parquet_that_is_gone_is_named(shop: Shop, tmp_path: Path, batch: int):
    archiver = Archiver(shop, tmp_path / "lake", file_format=PARQUET)
    for number in range(3):
        _send(shop, 5)
        archiver.run()
        archiver.finish(number)
    _lose(archiver, batch)
    told = rf"archive .*lake lacks batch=cccccccc-000000000{batch}, which its job had written; bri"
    with pytest.raises(DataLossError, match=told):
        reader_of(archiver).partitions()
    kept = [n for n in range(15) if n // 5 != batch]
    assert _counted(archiver) == ([("orders", p, n) for p in (0, 1) for n in kept], 10)


def test_a_file_of_a_compacted_topic_in_parquet_that_is_gone_is_named(shop: Shop, tmp_path: Path):
    shop.create("latest", 1, cleanup="compact")
    archiver = Archiver(shop, tmp_path / "lake", "latest", PARQUET)
    for _ in range(2):
        shop.send("latest", 0, 20)
        archiver.run()
    (file,) = archiver.path.glob("batch=*-0000000001/**/*.parquet")
    file.unlink()
    with pytest.raises(DataLossError, match=r"lacks batch=cccccccc-0000000001/topic=latest/day="):
        reader_of(archiver, subscribe="latest").partitions()


def test_an_archive_whose_first_records_were_deleted_begins_later_as_a_trimmed_log_does(
    archiver: Archiver,
):
    early = {"startingOffsets": '{"orders": {"*": 3}}'}
    behind, options = Checkpoint(), options_of(archiver, maxOffsetsPerTrigger="6")
    begun = Query({**options, "startingOffsets": "earliest"}, behind, Sink())
    begun.trigger()
    begun.die()
    _lose(archiver, 0)
    assert _offsets(archiver) == [*range(5, 17)]
    assert _offsets(archiver, startingTimestamp="0") == [*range(5, 17)]
    told = "offsets 3 to .*the archive 5 to 15: 2 records are lost"
    with pytest.raises(DataLossError, match=told):
        reader_of(archiver, **early).partitions()
    with pytest.raises(DataLossError, match=told):
        Query(options, behind, Sink()).all_available()
    kept = [("orders", p, n) for p in (0, 1) for n in range(5, 17)]
    assert _offsets(archiver, failOnDataLoss="false", **early) == [*range(5, 17)]
    assert _counted(archiver, behind) == (kept, 4)
    assert _counted(archiver) == (kept, 0)


def test_a_partition_of_which_nothing_is_left_in_an_archive_begins_in_the_log(
    archiver: Archiver,
):
    for batch in range(2):
        _lose(archiver, batch)
    if (archiver.path / "_delta_log").exists():
        DeltaTable(archiver.path).delete("partition = 1")
    else:
        for file in archiver.path.glob("batch=*/**/*.parquet"):
            rows = pq.read_table(file, partitioning=None)
            pq.write_table(rows.filter(pc.equal(rows["partition"], 0)), file)
    sink = Sink()
    Query(options_of(archiver, startingOffsets="earliest"), Checkpoint(), sink).all_available()
    kept = {0: range(10, 17), 1: range(15, 17)}
    assert sorted(sink.places) == [("orders", p, n) for p in (0, 1) for n in kept[p]]
    with pytest.raises(DataLossError, match="log holds 15 to 17, the archive nothing any more"):
        reader_of(archiver, startingOffsets='{"orders": {"0": 10, "1": 3}}').partitions()


def test_rows_that_were_deleted_from_a_table_are_no_loss_except_where_it_ends(
    shop: Shop, tmp_path: Path
):
    archiver = Archiver(shop, tmp_path / "lake")
    for _ in range(3):
        _send(shop, 5)
        archiver.run()
    DeltaTable(archiver.path).delete("offset in (0, 2, 5, 9, 10, 14)")
    with pytest.raises(DataLossError, match="orders-0: offsets 14 to 14 are in no file"):
        reader_of(archiver).partitions()
    _send(shop, 5)
    archiver.run()
    kept = [1, 3, 4, 6, 7, 8, 11, 12, 13, *range(15, 20)]
    assert _offsets(archiver) == kept
    sink = Sink()
    options = options_of(archiver, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    Query(options, Checkpoint(), sink).all_available()
    assert sorted(sink.places) == [("orders", p, n) for p in (0, 1) for n in kept]


def test_files_that_were_joined_and_vacuumed_are_no_loss(shop: Shop, tmp_path: Path):
    archiver = Archiver(shop, tmp_path / "lake")
    for _ in range(3):
        _send(shop, 5)
        archiver.run()
    assert DeltaTable(archiver.path).optimize.compact()["numFilesRemoved"] == 3
    gone = DeltaTable(archiver.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(gone) == 3
    assert _offsets(archiver) == [*range(15)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_offsets_that_compaction_left_empty_are_no_loss(
    shop: Shop, tmp_path: Path, file_format: str
):
    shop.create("latest", 1, cleanup="compact")
    archiver = Archiver(shop, tmp_path / "lake", "latest", file_format)
    shop.send("latest", 0, 20)
    shop.store.compact("latest")
    archiver.run()
    shop.send("latest", 0, 30)
    shop.store.compact("latest")
    archiver.run()
    reader = reader_of(archiver, subscribe="latest", startingOffsets='{"latest": {"0": 0}}')
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    found = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert found == [*range(13, 20), *range(43, 50)]


def test_a_stream_that_has_come_to_the_log_looks_at_no_file_of_the_archive(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
):
    sink = Sink()
    query = Query(options_of(archiver, startingOffsets="earliest"), Checkpoint(), sink)
    query.all_available()
    looked: list[str] = []
    files = reading.archived_files
    monkeypatch.setattr(
        reading, "archived_files", lambda *given: (looked.append("at it"), files(*given))[1]
    )
    places = _send(archiver.shop, 3)
    query.all_available()
    assert set(places) <= set(sink.places)
    assert not looked


def test_what_a_repair_cut_out_of_the_log_comes_from_the_archive(shop: Shop, tmp_path: Path):
    archiver = Archiver(shop, tmp_path / "lake")
    _send(shop, 10)
    archiver.write()
    archiver.commit()
    _send(shop, 5)
    for partition in (0, 1):
        shop.cut_out("orders", partition, 4, 7)
    assert _offsets(archiver) == [*range(15)]
    assert _offsets(archiver, startingOffsets='{"orders": {"*": 6}}') == [*range(6, 15)]
    for partition in (0, 1):
        shop.cut_out("orders", partition, 9, 11)  # offset 10 wasn't archived
    with pytest.raises(DataLossError, match="orders-0: offsets 9 to 10 were lost"):
        _offsets(archiver)
    kept = [n for n in range(15) if n != 10]
    assert _counted(archiver) == ([("orders", p, n) for p in (0, 1) for n in kept], 2)
