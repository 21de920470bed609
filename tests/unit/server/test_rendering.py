"""The page and the metrics, made of values: names are data, whatever is in them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.server import metrics, page
from kmq_spark.server.answers import refused
from kmq_spark.server.view import Seen
from kmq_storage.maintenance.reports import StoreStats
from kmq_storage.tables.columns import COLUMNS, table_batch
from tests.support.sources import ROOT
from tests.unit.server.exposition import parse

_KINDS = ("log", "staged", "segments", "checkpoints", "pages")
_STATS = StoreStats(dict.fromkeys(_KINDS, 7), dict.fromkeys(_KINDS, 2), 0, 0, 5, 70, 3, 1, 11, 1.5)
#: No line of a text file has these.
names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
labels = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


def _seen(name: str, damage: str = "") -> Seen:
    entry = {"kind": "records", "topic": name, "rows": 3}
    rows: dict[str, list[Any]] = {
        "topics": [(name, name, 1, 5, 70, *[None] * 8)],
        "partitions": [(name, 0, 1, 6, 5, 70)],
        "groups": [(name, 4, name, 0, 2, 6, 4, 56, 1.5), (f"{name}!", 1, *[None] * 7)],
        "members": [(name, name, name, 0, [(name, [0, 1])], 4)],
        "queues": [(name, [name, name], 1, 2, 3, 4, 5, 6, 7)],
        "commits": [(1, 0, [entry]), (2, 1_000_000, [entry, entry])],
    }
    tables = {
        table: pa.Table.from_batches([table_batch(table, made)], COLUMNS[table])
        for table, made in rows.items()
    }
    return Seen(name, 2, datetime(2026, 1, 31, 12, tzinfo=UTC), damage, tables)


class _Reader(HTMLParser):
    """Tags, which must be closed in order, and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.cells: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)
        if tag in ("td", "h1", "title"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("td", "h1", "title"):
            self.cells[-1] += data

    def read(self, text: str) -> _Reader:
        self.feed(text)
        self.close()
        assert self._open == []
        return self


_TAGS = _Reader().read(page.page(_seen("orders", "some damage"), _STATS)).tags


@given(names)
def test_a_name_adds_nothing_but_its_text_to_the_page(name: str):
    read = _Reader().read(page.page(_seen(name, damage=name), _STATS))
    assert read.tags == _TAGS
    assert read.cells[:2] == [f"kmq: {name}", name]
    assert read.cells.count(name) >= 6
    assert f"kind=records topic={name} rows=3" in read.cells


def test_the_page_has_no_script_and_fetches_nothing():
    read = _Reader().read(page.page(_seen("orders"), _STATS))
    assert not read.tags & {"script", "link", "img", "iframe", "form", "object"}
    assert all(
        (value or "").startswith("/") for name, value in read.attributes if name in ("href", "src")
    )
    assert ("http-equiv", "refresh") in read.attributes
    assert not any(name.startswith("on") or name == "style" for name, _ in read.attributes)
    assert "default-src 'none'" in page.POLICY
    assert "unsafe" not in page.POLICY


def test_the_page_shows_the_newest_commit_first_and_numbers_with_their_thousands():
    text = page.page(replace(_seen("orders"), lsn=12_345), _STATS)
    assert "as of commit 12,345, 2026-01-31 12:00:00 UTC" in text
    commits = text[text.index('<a href="/tables/commits">') :]
    assert commits.index("1970-01-01 00:00:01 UTC") < commits.index("1970-01-01 00:00:00 UTC")
    cells = _Reader().read(text).cells
    assert "orders=0, 1" in cells
    assert "orders, orders" in cells


def test_the_page_leaves_out_columns_that_say_nothing_and_numbers_stand_below_their_names():
    text = page.page(_seen("orders"), _STATS)
    assert '<th class="n">partitions</th>' in text
    assert "<th>topic_id</th>" in text
    assert "retention_seconds" not in text


def test_the_page_tells_how_many_rows_it_leaves_out_and_which_it_can_not_read():
    many = table_batch("partitions", [(f"t{n}", 0, 0, 0, 0, 0) for n in range(1_501)])
    seen = _seen("orders")
    tables = {**seen.tables, "partitions": pa.Table.from_batches([many])}
    del tables["commits"]
    text = page.page(replace(seen, tables=tables, damage="commits 3 to 4 are damaged"), _STATS)
    assert "<td>t499</td>" in text
    assert "<td>t500</td>" not in text
    assert "and 1,001 more" in text
    assert "can't be read" in text
    assert "commits 3 to 4 are damaged" in text


@given(labels)
def test_every_name_comes_back_from_the_metrics(name: str):
    found = parse(metrics.exposition(_seen(name), _STATS))
    place = {("topic", name), ("partition", "0")}
    assert found["kmq_partition_end_offset"].samples == {frozenset(place): 6}
    assert found["kmq_group_lag_seconds"].samples == {frozenset({*place, ("group", name)}): 1.5}
    assert found["kmq_group_members"].samples == {
        frozenset({("group", name)}): 1,
        frozenset({("group", f"{name}!")}): 0,
    }
    assert (
        found["kmq_queue_records"].samples[frozenset({("queue", name), ("state", "locked")})] == 2
    )


def test_metrics_are_named_by_the_conventions_of_prometheus():
    found = parse(metrics.exposition(_seen("orders"), _STATS))
    assert len(found) > 15
    for name, metric in found.items():
        assert name.startswith("kmq_")
        assert name.endswith("_total") == (metric.kind == "counter")
        assert metric.meaning.endswith(".")
    assert found["kmq_commits_total"].samples == {frozenset(): 2}
    assert found["kmq_store_bytes"].samples[frozenset({("kind", "log")})] == 7
    assert found["kmq_store_garbage_bytes"].samples == {frozenset(): 11}


def test_the_guide_names_every_table_and_every_metric():
    text = (ROOT / "docs" / "guide" / "serving.md").read_text()
    assert [name for name in COLUMNS if f"`{name}`" not in text] == []
    documented = re.findall(r"`(kmq_\w+)`", text)
    assert sorted(documented) == sorted(parse(metrics.exposition(_seen("orders"), _STATS)))


def test_what_may_go_down_is_no_counter():
    found = parse(metrics.exposition(_seen("orders"), _STATS))
    assert {name for name, metric in found.items() if metric.kind == "counter"} == {
        "kmq_commits_total",
        *(f"kmq_queue_{what}_total" for what in ("acked", "dead", "expired")),
    }
    assert found["kmq_queue_delivered"].samples == {frozenset({("queue", "orders")}): 4}


@pytest.mark.parametrize(("damage", "told"), [("", 0), ("commits 3 to 4 are damaged", 1)])
def test_metrics_tell_of_damage(damage: str, told: int):
    found = parse(metrics.exposition(_seen("orders", damage), _STATS))
    assert found["kmq_log_damaged"].samples == {frozenset(): told}


def test_a_refusal_is_one_line():
    assert refused(404, "two\r\nSet-Cookie: lines\n").content == b"two Set-Cookie: lines\n"
