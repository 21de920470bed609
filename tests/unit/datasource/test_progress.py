"""Finds lags that are wrong or hidden, and listeners that harm a query or miss its last batch."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.listener import KmqListener, QueryReport
from kmq_storage.environment import SYSTEM, Environment
from tests.spark.shop import Shop
from tests.support.s3 import S3Server
from tests.unit.datasource.archiver import Archiver
from tests.unit.datasource.engine import Query, Stream


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    return made


@dataclass
class Progress:
    """The progress of one batch, with the fields of Spark's."""

    sources: list[Any]
    id: str = "9dd4"
    name: str | None = "billing-query"
    batchId: int = 0  # noqa: N815
    numInputRows: int = 5  # noqa: N815
    processedRowsPerSecond: float = 50.0  # noqa: N815


@dataclass
class Watched:
    """A query that a listener is told of, batch by batch."""

    query: Query
    stream: Stream
    listener: KmqListener = field(default_factory=KmqListener)

    def run(self) -> Progress:
        """One batch, and what Spark would say of it."""
        assert self.query.trigger()
        latest = json.dumps(self.query.reader.reportLatestOffset())
        return Progress([_source(self.stream.checkpoint.ends[-1], latest)])

    def tell(self, progress: Progress) -> None:
        """Tell the listener."""
        self.listener.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]


def _source(end: str, latest: str) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def _watched(shop: Shop, listener: KmqListener | None = None, **options: str) -> Watched:
    stream = Stream(shop, startingOffsets="earliest", **options)
    return Watched(stream.start(), stream, listener or KmqListener())


def test_the_lag_of_a_query_is_counted_to_the_end_of_the_log_as_it_is_now(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    watched = _watched(shop, maxOffsetsPerTrigger="3")
    assert kmq.lag(SimpleNamespace(lastProgress=None)) == {}
    progress = watched.run()
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: 2, 1: 0}}
    shop.send("orders", 1, 4)
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: 2, 1: 4}}


def test_what_is_no_query_and_what_is_no_session_is_said(shop: Shop) -> None:
    nothing: Any = None
    for call, says in (
        (lambda: kmq.lag(nothing), "query must be a streaming query, not None"),
        (lambda: kmq.register(nothing), "spark must be a SparkSession, not None"),
        (lambda: kmq.incremental(nothing, shop.url, "g"), "spark must be a SparkSession, not None"),
    ):
        with pytest.raises(kmq.InvalidRequestError, match=says):
            call()


def test_only_what_a_query_reads_counts_as_its_lag(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    shop.send("orders", 1, 100)
    reports: list[QueryReport] = []
    listener = KmqListener(reports.append)
    watched = _watched(shop, listener, partitions="0", maxOffsetsPerTrigger="3")
    progress = watched.run()
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: 2}}
    watched.tell(progress)
    assert reports[0].behind is not None
    assert reports[0].behind.records == 2


@pytest.mark.parametrize(("with_archive", "records"), [(False, 10), (True, 95)])
def test_what_was_trimmed_is_no_lag_of_a_query_unless_it_reads_an_archive(
    shop: Shop, tmp_path: Path, with_archive: bool, records: int
) -> None:
    shop.send("orders", 0, 100)
    archiver = Archiver(shop, tmp_path / "lake")
    archiver.write()
    archiver.commit()
    options = {"archive": str(archiver.path)} if with_archive else {}
    reports: list[QueryReport] = []
    listener = KmqListener(reports.append)
    watched = _watched(shop, listener, maxOffsetsPerTrigger="5", **options)
    progress = watched.run()
    shop.store.trim("orders", {0: 90})
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: records, 1: 0}}
    watched.tell(progress)
    assert reports[0].behind is not None
    assert reports[0].behind.records == records


def test_a_topic_that_no_batch_has_yet_counts_as_lag(shop: Shop) -> None:
    shop.send("orders", 0, 1)
    watched = _watched(shop)
    watched.stream.options.pop("subscribe")
    watched.query = watched.stream.start(subscribePattern="orders|returns")
    progress = watched.run()
    shop.create("returns")
    shop.send("returns", 0, 3)
    progress.sources[0].latestOffset = json.dumps(watched.query.reader.reportLatestOffset())
    expected = {"orders": {0: 0, 1: 0}, "returns": {0: 3}}
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == expected


def test_the_lag_is_that_of_the_progress_where_the_store_is_out_of_reach(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    progress = _watched(shop, maxOffsetsPerTrigger="3").run()
    source = progress.sources[0]
    source.latestOffset = source.latestOffset.replace(shop.url, "/nowhere/at/all")
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {"orders": {0: 2, 1: 0}}


def test_other_sources_and_replayed_batches_have_no_lag(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    progress = _watched(shop).run()
    for end, latest in (('{"a": 1}', '{"a": 2}'), ("null", "None"), ("17", "18")):
        assert kmq.lag(SimpleNamespace(lastProgress=Progress([_source(end, latest)]))) == {}
    progress.sources[0].latestOffset = "null"
    assert kmq.lag(SimpleNamespace(lastProgress=progress)) == {}


def test_the_progress_says_how_much_is_behind_and_where(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    watched = _watched(shop, maxOffsetsPerTrigger="3", group="g")
    watched.run()
    report = watched.query.reader.reportLatestOffset()
    own = report.pop("#kmq")
    assert report == {"orders": {"0": 5, "1": 0}}
    assert own["behind"] == 2
    assert own["lost"] == 0
    assert (own["store"], own["group"], own["generation"]) == (shop.url, "g", 1)


def test_a_listener_moves_the_group_after_the_last_batch_too(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    watched = _watched(shop, group="g")
    progress = watched.run()
    assert shop.committed("g", "orders") == {0: 0, 1: 0}
    watched.stream.stop()
    watched.tell(progress)
    assert shop.committed("g", "orders") == {0: 5, 1: 0}
    lsn = shop.lsn()
    watched.tell(progress)
    assert shop.lsn() == lsn


def test_a_listener_gets_into_a_bucket_by_what_it_is_given(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    shop = Shop(moto.new_url(), storage_options=moto.options())
    shop.create("orders")
    shop.send("orders", 0, 5)
    reports: list[QueryReport] = []
    listener = KmqListener(reports.append, storage_options=moto.options())
    given = {f"storage.{name}": value for name, value in moto.options().items()}
    watched = _watched(shop, listener, group="g", **given)
    progress = watched.run()
    shop.send("orders", 0, 2)
    watched.tell(progress)
    assert shop.committed("g", "orders") == {0: 5}
    assert reports[0].behind is not None
    assert reports[0].behind.records == 2
    asked = SimpleNamespace(lastProgress=progress)
    assert kmq.lag(asked, storage_options=moto.options()) == {"orders": {0: 2}}
    shop.close()


def test_a_listener_does_not_move_a_group_that_another_query_reads_by_now(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 5)
    watched = _watched(shop, group="g", maxOffsetsPerTrigger="3")
    progress = watched.run()
    watched.stream.stop()
    other = Stream(shop, startingOffsets="earliest", group="g")
    other.start()
    other.start().trigger()
    watched.tell(progress)
    assert shop.committed("g", "orders") == {0: 0, 1: 0}
    assert "group g was not moved: group g was taken over by a streaming query" in caplog.text


def test_a_listener_reports_throughput_records_bytes_and_seconds(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 5)
    reports: list[QueryReport] = []
    later = Environment(now_ns=lambda: SYSTEM.now_ns() + 60 * 10**9)
    watched = _watched(shop, KmqListener(reports.append, later), maxOffsetsPerTrigger="3")
    caplog.set_level(logging.INFO, "kmq_spark.listener")
    watched.tell(watched.run())
    (report,) = reports
    assert report.behind is not None
    assert report.behind.records == 2
    assert report.behind.bytes == 8
    assert 60 <= report.behind.seconds < 90
    assert (report.records, report.records_per_second) == (5, 50.0)
    assert watched.listener.latest == {"9dd4": report}
    assert "query billing-query, batch 0: 5 records, 50 per second; behind: 2 reco" in caplog.text
    ended = SimpleNamespace(id="9dd4")
    watched.listener.onQueryTerminated(ended)  # type: ignore[arg-type]
    assert watched.listener.latest == {}


def test_a_listener_says_loudly_what_was_lost(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.send("orders", 0, 5)
    watched = _watched(shop, maxOffsetsPerTrigger="1", failOnDataLoss="false")
    watched.run()
    shop.store.trim("orders", {0: 4})
    caplog.set_level(logging.INFO, "kmq_spark.listener")
    watched.tell(watched.run())
    shop.send("orders", 0, 1)
    watched.tell(progress := watched.run())
    progress.sources[0].latestOffset = "null"  # as where a run replays the batch, and ends
    replayed = KmqListener()
    replayed.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]
    told = [(r.levelname, "3 records LOST" in r.message) for r in caplog.records[-3:]]
    assert told == [("WARNING", True), ("INFO", True), ("WARNING", True)]


def test_a_listener_leaves_other_queries_alone() -> None:
    listener = KmqListener()
    event = SimpleNamespace(progress=Progress([_source('{"a":1}', "null")]))
    listener.onQueryProgress(event)  # type: ignore[arg-type]
    assert listener.latest == {}
