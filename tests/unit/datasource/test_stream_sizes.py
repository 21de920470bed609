"""Finds work of a micro-batch that grows faster than what the batch reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from kmq_spark.datasource import opening, stream_reader
from kmq_spark.datasource.planning import topic_ranges
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Stream, batch_reader

TOPICS = [f"orders{n}" for n in range(12)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    for topic in TOPICS:
        made.create(topic)
        made.send(topic)
    return made


@pytest.fixture
def stream(shop: Shop) -> Stream:
    made = Stream(shop, startingOffsets="earliest", subscribePattern="orders.*")
    del made.options["subscribe"]
    return made


def _counted(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        calls[name] += 1
        return function(*arguments, **named)

    return call


def test_each_topic_of_a_batch_is_compared_with_what_is_known_of_itself_only(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    compared = _counted(calls, "compared", topic_ranges.TopicRanges._is)
    monkeypatch.setattr(topic_ranges.TopicRanges, "_is", compared)
    assert stream.start().trigger()
    assert stream.sizes == [len(TOPICS)]
    assert calls["compared"] == len(TOPICS)


def test_a_batch_looks_only_into_topics_that_have_news(
    shop: Shop, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stream.start()
    assert query.trigger()
    shop.send(TOPICS[3], count=2)
    calls: Counter[str] = Counter()
    between = topic_ranges.TopicRanges.between
    monkeypatch.setattr(topic_ranges.TopicRanges, "between", _counted(calls, "between", between))
    spread = _counted(calls, "spread", topic_ranges.spread_of)
    monkeypatch.setattr(topic_ranges, "spread_of", spread)
    assert query.trigger()
    assert stream.sizes == [len(TOPICS), 2]
    assert calls == {"between": 2, "spread": 1}  # once for its end, once for its tasks


def test_the_progress_of_a_query_without_news_is_made_once(
    shop: Shop, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stream.start()
    query.all_available()
    calls: Counter[str] = Counter()
    monkeypatch.setattr(stream_reader, "log_end", _counted(calls, "log_end", stream_reader.log_end))
    for _ in range(5):
        assert not query.trigger()
    assert calls["log_end"] <= 1
    shop.send(TOPICS[0], count=3)
    told = query.reader.reportLatestOffset()
    assert told[TOPICS[0]] == {"0": 4}
    assert told["#kmq"]["behind"] == 3


def test_a_batch_read_looks_only_into_topics_that_have_something_to_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = {topic: {"0": 1} for topic in TOPICS} | {TOPICS[3]: {"0": 0}}
    given = {"path": shop.url, "subscribePattern": "orders.*", "startingOffsets": dumps(starts)}
    calls: Counter[str] = Counter()
    spread = _counted(calls, "spread", topic_ranges.spread_of)
    monkeypatch.setattr(topic_ranges, "spread_of", spread)
    reader = batch_reader(given)
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 1
    assert calls == {"spread": 1}


def test_a_trigger_opens_the_store_once(
    shop: Shop, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stream.start()
    query.all_available()
    calls: Counter[str] = Counter()
    monkeypatch.setattr(opening, "open_place", _counted(calls, "opened", opening.open_place))
    assert not query.trigger()
    assert calls.pop("opened") == 1
    shop.send(TOPICS[0])
    assert query.trigger()
    assert calls["opened"] == 1
