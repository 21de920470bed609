"""Finds batches of archive and log together that miss their limits, or wait though enough is there.

The archive has the first records of each partition, and the log those behind them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.shop import Shop
from tests.unit.datasource.archiver import Archiver
from tests.unit.datasource.engine import Stream
from tests.unit.datasource.test_stream_limits import RECORD, Clock


@pytest.fixture
def stream(shop: Shop, tmp_path: Path) -> Stream:
    """From the beginning on of 13 + 1000, 0 + 20 and 7 + 0 records."""
    archiver = Archiver(shop, tmp_path / "lake")
    for partition, count in ((0, 13), (2, 7)):
        shop.send("orders", partition, count)
    archiver.run()
    for partition, count in ((0, 1_000), (1, 20)):
        shop.send("orders", partition, count)
    return Stream(shop, startingOffsets="earliest", archive=str(archiver.path))


def _everything(stream: Stream) -> bool:
    archived = [("orders", p, n) for p, count in ((0, 13), (2, 7)) for n in range(count)]
    return sorted(stream.sink.places) == sorted([*archived, *stream.shop.places("orders")])


def test_a_number_of_records_is_exact_from_the_archive_into_the_log(stream: Stream) -> None:
    stream.start(available_now=True, maxOffsetsPerTrigger="400").all_available()
    assert stream.sizes == [400, 400, 240]
    assert _everything(stream)


def test_a_batch_waits_for_no_more_records_while_archive_and_log_have_enough(
    stream: Stream,
) -> None:
    stream.environment = Clock().environment()
    query = stream.start(maxOffsetsPerTrigger="30", minOffsetsPerTrigger="25")
    for _ in range(4):
        assert query.trigger()
    assert stream.sizes == [30] * 4


@pytest.mark.parametrize("records", [104, 80])
def test_a_limit_of_bytes_holds_from_the_archive_into_the_log(stream: Stream, records: int) -> None:
    limits = {"maxBytesPerTrigger": str(100 * (RECORD + 2)), "maxOffsetsPerTrigger": str(records)}
    stream.start(available_now=True, **limits).all_available()
    assert max(stream.sizes) <= records
    # One record a batch is of the partition of which only compressed files say what it weighs.
    assert min(stream.sizes[:-1]) >= min(records, 85)
    assert _everything(stream)


def test_lost_records_between_archive_and_log_take_no_room_in_a_batch(stream: Stream) -> None:
    stream.shop.store.trim("orders", {0: 513})
    careless = {"maxOffsetsPerTrigger": "60", "failOnDataLoss": "false"}
    stream.start(available_now=True, **careless).all_available()
    assert len(stream.sizes) <= 11
    assert 0 not in stream.sizes
    assert stream.lost == 500
    assert _everything(stream)
