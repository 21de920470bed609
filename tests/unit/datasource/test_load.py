"""Finds mistakes that `load()` could have refused, and restarts that it refuses wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.source import KmqDataSource
from kmq_storage.errors import DataLossError, InvalidRequestError, NotFoundError
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Stream, batch_reader, stream_reader


def test_a_relative_path_is_refused_where_spark_connect_runs_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "userFiles-1b2c" / "50e5"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    given = {"path": "/data/shop", "subscribe": "orders"}
    for option in ("path", "archive"):
        for place in ("data/x", "../../../../x"):
            expected = rf"'{option}' is '{re.escape(place)}': expected a full"
            with pytest.raises(InvalidRequestError, match=expected):
                parse_source_options({**given, option: place})
    for full in ("/data/shop", "~/shop", "s3://bucket/shop", str(folder / "shop"), "file:///data"):
        parse_source_options({**given, "path": full})


def _load(shop: Shop, **options: str) -> None:
    chosen = {} if options.keys() & {"assign", "subscribePattern"} else {"subscribe": "orders"}
    KmqDataSource({"path": shop.url, **chosen, **options}).schema()


TOO_MANY = {
    "a partition too many": {"startingOffsets": '{"orders":{"3":1,"*":-2}}'},
    "a topic too many": {"startingOffsets": '{"orders":{"*":-2},"ordres":{"*":-2}}'},
    "a topic too many with a partition": {"startingOffsets": '{"ordres":{"0":1}}'},
    "times for too many": {"startingOffsetsByTimestamp": '{"orders":{"7":1}}'},
    "not assigned": {"assign": '{"orders":[0,1]}', "startingOffsets": '{"orders":{"*":1,"2":1}}'},
    "not chosen": {"partitions": "0-1", "startingOffsets": '{"orders":{"*":1,"2":1}}'},
    "a pattern's": {"subscribePattern": "^ord", "startingOffsets": '{"orders":{"*":1,"9":1}}'},
    "an end too many": {"endingOffsets": '{"orders":{"3":1,"*":-1}}'},
    "an end too few": {"endingOffsets": '{"orders":{"0":1,"1":1}}'},
    "a start too few for a batch": {
        "startingOffsets": '{"orders":{"0":1}}',
        "endingOffsets": "latest",
    },
}


@pytest.mark.parametrize("options", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_bounds_of_partitions_that_are_not_read_are_refused_at_load(
    shop: Shop, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError, match=r"must name every partition .*specified .*assig"):
        _load(shop, **options)


def test_a_batch_that_begins_at_its_end_is_refused_at_load_if_it_has_one(shop: Shop) -> None:
    with pytest.raises(InvalidRequestError, match="'startingOffsets' is latest"):
        _load(shop, startingOffsets="latest", endingOffsets='{"orders":{"*":4}}')


def test_a_start_is_no_reason_to_refuse_the_restart_of_a_stream(shop: Shop) -> None:
    for offsets in ('{"orders":{"0":1,"1":1,"2":1}}', "latest"):
        _load(shop, startingOffsets=offsets)
    shop.grow("orders", 5)
    _load(shop, startingOffsets='{"orders":{"0":1,"1":1,"2":1}}')
    _load(shop, startingOffsets='{"orders":{"9":1}}', failOnDataLoss="false")


@pytest.mark.parametrize("place", ["nowhere", ""])
def test_an_archive_that_is_not_there_is_refused_at_load(
    shop: Shop, tmp_path: Path, place: str
) -> None:
    with pytest.raises(NotFoundError, match=r"Archive\[.*\] doesn't exist: `kmq archive`"):
        _load(shop, archive=str(tmp_path / place))


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_offsets_of_a_topic_that_was_made_again_with_other_partitions_are_those_of_the_old_one(
    shop: Shop, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    shop.create("again", 2)
    stream = Stream(shop, subscribe="again", startingOffsets="earliest")
    shop.send("again", 1, 4)
    stream.start().all_available()
    progress = stream.checkpoint.ends[-1]
    shop.delete("again")
    shop.create("again", partitions)
    sent = [place[1:] for place in shop.send("again", 0, 3)]
    given = {"path": shop.url, "subscribe": "again", "startingOffsets": progress}
    _load(shop, **given)
    with pytest.raises(DataLossError, match="made again"):
        batch_reader(given).partitions()
    assert _places(batch_reader(given | {"failOnDataLoss": "false"})) == sent
    assert "made again" in caplog.text


@pytest.mark.parametrize("names", ['"gone":{"0":1},', '"gone":{"*":5},', ""])
def test_a_bound_may_name_a_topic_that_the_read_goes_on_without(shop: Shop, names: str) -> None:
    sent = shop.send("orders", 0, 4)
    bound = "{" + names + '"orders":{"0":1,"*":0}}'
    given = {"path": shop.url, "subscribe": "orders,gone", "failOnDataLoss": "false"}
    starting = given | {"startingOffsets": bound}
    for each in (starting, starting | {"endingOffsets": bound.replace(":0", ":-1")}):
        _load(shop, **each)
    assert _places(batch_reader(starting)) == [place[1:] for place in sent[1:]]
    assert stream_reader(starting).latestOffset()["orders"] == {"0": 4, "1": 0, "2": 0}


def _places(reader: KmqBatchReader) -> list[tuple[int, int]]:
    return [
        place
        for task in reader.partitions()
        for batch in reader.read(task)
        for place in zip(*batch.select(["partition", "offset"]).to_pydict().values(), strict=True)
    ]
