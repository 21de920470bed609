"""Finds costs of typed topics that grow faster than their columns."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kmq_spark.client.typed_arrow import check_typed_columns
from kmq_spark.client.typed_topics import typed_columns
from kmq_spark.datasource.executor.record_batches import Origin, of_archive
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.planning.view import columns_of_read, view_of
from kmq_storage.log.topic_state import Topic
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
