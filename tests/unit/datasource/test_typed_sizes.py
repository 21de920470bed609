"""Finds costs of typed topics that grow faster than their columns, or with equal topics."""

from __future__ import annotations

import difflib
import pickle
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kmq_spark.client.typed.arrow import check_typed_columns
from kmq_spark.client.typed.topics import typed_columns
from kmq_spark.datasource.executor.record_batches import Origin, of_archive
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.planning.view import columns_of_read, view_of
from kmq_spark.datasource.sink import typed
from kmq_spark.datasource.stream_reader import KmqStreamReader
from kmq_storage.log.state.topic_state import Topic
from tests.spark.shop import Shop

SCHEMA = pa.schema([(f"column{n}", pa.int64()) for n in range(200)])
ROWS = pa.RecordBatch.from_arrays([pa.array([n]) for n in range(len(SCHEMA))], schema=SCHEMA)


class Names(list[str]):
    """Column names that count how often somebody goes through them."""

    passes = 0

    def __contains__(self, name: object) -> bool:
        self.passes += 1
        return super().__contains__(name)

    def count(self, name: str, /) -> int:
        self.passes += 1
        return super().count(name)


@dataclass
class Known:
    """A schema, or a batch with it, that gives out these names."""

    whole: Any
    names: Names

    @property
    def schema(self) -> Known:
        """The same names."""
        return Known(self.whole.schema, self.names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


def _topic(shop: Shop, name: str) -> Topic:
    return shop.store.log.refresh().topic(name)


def test_columns_are_found_by_name_and_not_among_all_names(tmp_path: Path) -> None:
    shop, names = Shop(tmp_path / "shop"), Names(SCHEMA.names)
    shop.create("typed", schema=SCHEMA)
    topic = _topic(shop, "typed")
    options = parse_source_options({"path": shop.url, "subscribe": "typed"})
    view = view_of(columns_of_read([topic], options), [topic], options)
    batch: Any = Known(ROWS, names)
    assert of_archive(batch, Origin("typed", uuid.uuid4(), 0), view).to_pylist() == ROWS.to_pylist()
    columns = typed_columns(topic)
    assert columns is not None
    check_typed_columns(batch.schema, "typed", columns)
    assert names.passes == 0


def test_columns_that_are_ignored_are_compared_only_with_those_that_the_rows_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def matches(name: str, known: Iterable[str], **limits: Any) -> list[str]:
        compared.extend(known)
        return difflib.get_close_matches(name, known, **limits)

    monkeypatch.setattr(typed, "get_close_matches", matches)
    shop = Shop(tmp_path / "shop")
    shop.create("typed", schema=SCHEMA)
    columns = typed_columns(_topic(shop, "typed"))
    assert columns is not None
    others = [f"other{n}" for n in range(200)]
    typed.check_spelling([*SCHEMA.names[1:], *others], "typed", columns)
    assert compared == ["column0"] * len(others)  # with all columns, it was 40,000


def test_a_schema_that_many_topics_have_travels_once_with_what_reads_them(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop")
    for number in range(20):
        shop.create(f"typed{number}", schema=SCHEMA)
    with shop.store.producer() as producer:
        for number in range(20):
            producer.send_arrow(f"typed{number}", ROWS)
    given = {"path": shop.url, "subscribePattern": "typed.*", "startingOffsets": "earliest"}
    options, topic = parse_source_options(given), _topic(shop, "typed7")
    view = view_of(columns_of_read([topic], options), [topic], options)
    reader = KmqStreamReader(options, view)
    tasks = reader.partitions(reader.initialOffset(), reader.latestOffset(reader.initialOffset()))
    (encoded,) = topic.settings.schemas
    assert pickle.dumps(tasks).count(encoded.encode()) == 1
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 20
