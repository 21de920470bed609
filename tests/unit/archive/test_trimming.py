"""What the log gives up for an archive: no record that is not archived, none that is to be kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import kmq_spark as kmq
from kmq_spark.archive import trimming
from kmq_spark.archive.trimming import check_held, trim_archived
from kmq_spark.lake.places import ArchivePlace
from kmq_storage.errors import DataLossError
from tests.spark.shop import Shop
from tests.unit.datasource.archiver import Archiver


def _store(tmp_path: Path, *ages: float) -> kmq.Store:
    store = kmq.open(tmp_path / "store")
    store.create_topic("orders")
    now = datetime.now(UTC)
    with store.producer() as producer:
        for age in ages:
            producer.send("orders", b"v", timestamp=now - timedelta(seconds=age))
    store.set_group_offsets("archive-1", {"orders": {0: 3}})
    return store


def test_young_records_stay_though_they_are_archived(tmp_path: Path):
    with _store(tmp_path, 10, 8, 6, 4) as store:
        assert trim_archived(store, "archive-1", keep=3600) == {}
        assert store.offsets("orders") == {0: (0, 4)}


def test_old_records_go_up_to_the_first_young_one(tmp_path: Path):
    with _store(tmp_path, 9000, 8000, 60, 40) as store:
        assert trim_archived(store, "archive-1", keep=3600) == {"orders": {0: 2}}


def test_how_long_records_stay_is_a_number_or_a_timedelta(tmp_path: Path):
    with _store(tmp_path, 9000, 8000, 60, 40) as store:
        for keep in (-5, float("nan"), "1h", None):
            with pytest.raises(kmq.InvalidRequestError, match="keep"):
                trim_archived(store, "archive-1", keep)  # type: ignore[arg-type]
        assert store.offsets("orders") == {0: (0, 4)}
        found = trim_archived(store, "archive-1", timedelta(hours=1))
        assert found == {"orders": {0: 2}}


def test_records_that_are_not_archived_stay(tmp_path: Path):
    with _store(tmp_path, 9000, 8000, 7000, 6000) as store:
        assert trim_archived(store, "archive-1", keep=3600) == {"orders": {0: 3}}


def test_records_of_a_topic_that_is_made_again_meanwhile_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with _store(tmp_path, 9000, 8000, 7000) as store:

        def made_again(*_: Any) -> Any:
            monkeypatch.undo()
            found = trimming.committed_offsets(store.log.refresh(), "archive-1")
            store.delete_topic("orders")
            store.create_topic("orders")
            with store.producer() as producer:
                producer.send_batch("orders", [b"new"] * 5).result(10)
            return found

        monkeypatch.setattr(trimming, "committed_offsets", made_again)
        assert trim_archived(store, "archive-1", keep=0) == {}
        assert store.offsets("orders") == {0: (0, 5)}


def test_nothing_is_given_up_that_a_restored_table_no_longer_has(tmp_path: Path):
    shop = Shop(tmp_path / "store")
    shop.create("orders", 2)
    archiver, place = Archiver(shop, tmp_path / "lake"), ArchivePlace(str(tmp_path / "lake"))
    for _ in range(2):
        for partition in (0, 1):
            shop.send("orders", partition, 5)
        archiver.write()
        archiver.commit()
        check_held(shop.store.log, place)
    DeltaTable(archiver.path).restore(0)
    with pytest.raises(DataLossError, match=r"orders-0: offsets 5 to 9 .* nothing was trimmed"):
        check_held(shop.store.log, place)
    archiver.trim()
    check_held(shop.store.log, place)  # it is too late
    shop.close()
