"""Finds tables of a store's state that say something else than the store, without a JVM."""

from __future__ import annotations

import inspect
import pickle
import re
import uuid
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

import kmq_spark as kmq
from kmq_spark.datasource import table_reader
from kmq_spark.datasource.columns.tables import TABLES, table_spark_schema
from kmq_spark.datasource.columns.typed_schema import spark_arrow_schema
from kmq_spark.datasource.executor import segment_rows
from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.tables import plan
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import SEGMENT, Row
from kmq_storage.groups import administration
from kmq_storage.log.checkpoints.checkpoint import write_checkpoint
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.live_rows import Cover
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.tables import commit_rows
from kmq_storage.tables.columns import COLUMNS
from kmq_storage.tables.reading import table_of
from kmq_storage.tables.state_rows import ROWS
from tests.spark.shop import Shop
from tests.support.damage import flip

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "spark-tables.md"


@pytest.fixture(params=["local", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    s3 = request.param == "s3"
    made = Shop(request.getfixturevalue("s3_url") if s3 else tmp_path / "shop")
    made.create("orders", 2)
    return made


def _tasks(shop: Shop, table: str) -> list[InputPartition]:
    source = KmqDataSource({"path": shop.url, "table": table})
    return [*pickle.loads(pickle.dumps(source.reader(source.schema()))).partitions()]


def _read(shop: Shop, table: str, tasks: list[InputPartition] | None = None) -> list[Any]:
    source = KmqDataSource({"path": shop.url, "table": table})
    reader = source.reader(source.schema())
    tasks = _tasks(shop, table) if tasks is None else tasks
    batches = [batch for task in tasks for batch in reader.read(pickle.loads(pickle.dumps(task)))]
    assert all(batch.schema.equals(COLUMNS[table]) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_table_and_column_is_documented_with_its_type() -> None:
    documented: dict[str, list[tuple[str, str]]] = {}
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("## "):
            documented[line[3:]] = []
        elif found := re.match(r"\| (?!column)(\w+) \| ([\w<>:,]+) \| [^|]+ \|\Z", line):
            documented[[*documented][-1]].append((found[1], found[2]))
    assert documented == {
        table: [(f.name, f.dataType.simpleString()) for f in table_spark_schema(table)]
        for table in documented
    }
    assert sorted(documented) == sorted(TABLES)


def test_columns_of_tables_have_the_types_that_spark_expects_for_them() -> None:
    expected = {table: spark_arrow_schema(table_spark_schema(table)) for table in TABLES}
    assert all(COLUMNS[table].equals(schema) for table, schema in expected.items())


def test_every_kind_of_a_commits_entries_is_documented() -> None:
    made = re.findall(r'(?:"kind": |_placed\(|_run\()"(\w+)"', inspect.getsource(commit_rows))
    answers = {f"queue_{answer}" for answer in commit_rows._ANSWERS.values()}
    section = DOCUMENT.read_text().split("Kinds of entries")[1].split("## queues")[0]
    rows = re.findall(r"^\| ([a-z_, ]+) \| (?!what)[^|]+ \| [^|]+ \|$", section, re.MULTILINE)
    documented = [kind for row in rows for kind in row.split(", ")]
    assert sorted(documented) == sorted({*made, *answers})


def test_topics_and_partitions_are_what_the_store_says_of_them(shop: Shop) -> None:
    typed = pa.schema([pa.field("id", pa.int64())])
    shop.create("sales", 1, schema=typed, retention=60, compression="zstd", cleanup="compact")
    shop.send("orders", 1, 5)
    infos = {info.name: info for info in shop.store.topics()}
    rows = {row["topic"]: row for row in _read(shop, "topics")}
    assert {
        name: (uuid.UUID(row["topic_id"]), row["partitions"], row["rows"], row["bytes"])
        for name, row in rows.items()
    } == {
        name: (info.topic_id, info.partitions, info.rows, info.bytes)
        for name, info in infos.items()
    }
    assert (rows["orders"]["schema"], rows["sales"]["schema"]) == (None, "id int64")
    assert [rows["sales"][name] for name in ("retention_seconds", "compression", "cleanup")] == [
        60.0,
        "zstd",
        "compact",
    ]
    assert [(row["topic"], row["partition"], row["end"]) for row in _read(shop, "partitions")] == [
        ("orders", 0, 0),
        ("orders", 1, 5),
        ("sales", 0, 0),
    ]


def test_groups_show_what_they_committed_and_how_far_they_are_behind(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    shop.send("orders", 1, 4)
    shop.commit("billing", "orders", {0: 7})
    with shop.store.consumer("idle", topics=["orders"], name="me"):
        groups, members = _read(shop, "groups"), _read(shop, "members")
    info = shop.store.describe_group("billing")
    found = {row["partition"]: row for row in groups if row["group"] == "billing"}
    for name in ("end", "lag", "lag_bytes"):
        assert {p: row[name] for p, row in found.items()} == getattr(info, name)["orders"]
    assert [found[p]["committed"] for p in (0, 1)] == [7, None]
    assert all(0 < row["lag_seconds"] < 60 for row in found.values())
    assert [
        (row["topic"], row["partition"], row["committed"], row["lag"])
        for row in groups
        if row["group"] == "idle"
    ] == [("orders", 0, None, 10), ("orders", 1, None, 4)]
    assert [(row["group"], row["name"], row["assignment"]) for row in members] == [
        ("idle", "me", [("orders", [0, 1])])
    ]
    assert _read(shop, "members") == _read(shop, "queues") == []


def test_members_are_told_without_a_count_of_what_their_groups_have_not_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send("orders", 0, 10)
    with shop.store.consumer("billing", topics=["orders"], name="me") as consumer:
        consumer.consume(4, timeout=5.0)
        consumer.commit()
        for count in ("_size_from", "_age_of"):  # one of each for each partition of each group
            monkeypatch.delattr(administration, count)
        assert [row["name"] for row in _read(shop, "members")] == ["me"]


def test_queues_show_where_their_records_are(shop: Shop) -> None:
    shop.send("orders", 0, 5)
    shop.store.create_queue("none")
    shop.store.create_queue("mails", topics=["orders"])
    held = shop.store.queue("mails").receive(3)
    held[0].ack()
    mails, none = _read(shop, "queues")
    assert mails == {
        "queue": "mails",
        "topics": ["orders"],
        "ready": 2,
        "locked": 2,
        "delayed": 0,
        "delivered": 3,
        "acked": 1,
        "dead": 0,
        "expired": 0,
    }
    assert (none["queue"], none["topics"], none["ready"]) == ("none", [], 0)


def test_tables_say_that_the_log_can_not_be_read_to_its_end(tmp_path: Path) -> None:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    log = tmp_path / "shop" / "log" / "00000000000000000001.log"
    written = len(log.read_bytes().rstrip(b"\0"))
    made.commit("billing", "orders", {0: 0})
    made.close()
    flip(log, written + 40)  # in the frame of the group's commit
    with pytest.warns(kmq.KmqWarning, match=r"more may have been stored than is told of orders-0"):
        assert _read(made, "groups") == []
    with (
        pytest.warns(kmq.KmqWarning, match="commits 2 to 2"),
        pytest.raises(CorruptionError, match="put the file back from a copy, or repair the store"),
    ):
        _read(made, "commits")


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_read_without_spark_is_the_same(shop: Shop, table: str) -> None:
    shop.send("orders", 0, 5)
    shop.store.seal()
    shop.store.checkpoint()
    shop.send("orders", 1, 3)
    shop.store.seal()
    shop.store.create_queue("mails", topics=["orders"])
    shop.commit("billing", "orders", {0: 5, 1: 3})
    shop.create("empty")
    with shop.store.consumer("idle", topics=["empty"]):
        rows = _read(shop, table)
        log = shop.store.log
        read = table_of(log, log.refresh(), table)
        assert (read.schema, read.to_pylist()) == (COLUMNS[table], rows)
        for limit in (1, 2, 1_000):
            some = table_of(log, log.refresh(), table, limit=limit).to_pylist()
            assert some == (rows[-limit:] if table == "commits" else rows[:limit])


def test_commits_are_those_of_the_log_in_ranges(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_TASK_COMMITS", 3)
    monkeypatch.setattr(commit_rows, "_BATCH_COMMITS", 2)
    shop.create("gone")
    shop.send("gone")
    shop.delete("gone")
    for _ in range(6):
        shop.send("orders", 1, 3)
    shop.commit("billing", "orders", {1: 4})
    shop.store.seal()
    shop.store.trim("orders", {1: 2})
    tasks = _tasks(shop, "commits")
    commits = list(shop.store.commits())
    assert len(tasks) > 1
    shop.send("orders")  # later than the plan
    rows = _read(shop, "commits", tasks)
    assert [(row["lsn"], row["time"]) for row in rows] == [(c.lsn, c.time) for c in commits]
    entries = [entry for row in rows for entry in row["entries"]]
    assert Counter(entry["kind"] for entry in entries) == {
        "topic": 3,
        "records": 7,
        "producer": 7,
        "group_offsets": 1,
        "segment": 1,
        "trim": 1,
    }
    places = [
        (entry["topic"], entry["partition"], entry["base_offset"], entry["rows"])
        for entry in entries
        if entry["kind"] in ("records", "group_offsets", "trim")
    ]
    assert places == [
        (None, 0, 0, 1),
        *(("orders", 1, n, 3) for n in range(0, 18, 3)),
        ("orders", 1, 4, None),
        ("orders", 1, 2, 2),
    ]


def _places_of_manifest(shop: Shop) -> list[tuple[Any, ...]]:
    state = shop.store.log.refresh()
    return sorted(
        (name, number, row.base_offset, row.end_offset, row.path((topic.id, number)), row.bytes)
        for name, topic in state.topics.items()
        for number, part in enumerate(topic.parts)
        for row in topic.index(number).rows(part.start, part.end)
        if row.kind
    )


def _places_of_table(shop: Shop) -> list[tuple[Any, ...]]:
    names = ("topic", "partition", "base_offset", "end_offset", "file", "file_bytes")
    return sorted(tuple(row[name] for name in names) for row in _read(shop, "segments"))


def test_segments_are_the_rows_of_the_manifest_whatever_happened_since_its_checkpoint(
    shop: Shop,
) -> None:
    def same() -> int:
        places = _places_of_table(shop)
        assert places == _places_of_manifest(shop)
        return len(places)

    shop.create("gone")
    assert same() == 0
    for _ in range(3):
        for place in (("orders", 0), ("orders", 1), ("gone", 0)):
            shop.send(*place, 5)
            shop.store.seal()
    assert same() == 9
    shop.store.checkpoint()
    assert same() == 9
    shop.send("orders", 0, 100)
    with shop.store.producer() as producer:
        producer.send_batch("orders", [b"x" * 999_999] * 3, partition=1).result(30)
    assert same() == 10  # one is staged
    shop.store.seal()
    shop.store.trim("orders", {0: 7})
    shop.delete("gone")
    same()
    shop.cut_out("orders", 1, 5, 10)
    same()
    shop.store.compact("orders")
    same()
    shop.store.checkpoint()
    assert same()
    row = _read(shop, "segments")[0]
    assert (row["kind"], row["compacted"], row["rows"] > 0) == ("sealed", False, True)


intervals = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True).map(sorted)


@given(st.integers(0, 60), intervals, intervals, intervals)
def test_what_covers_an_older_row_is_found_for_all_rows_at_once(
    start: int, rows: list[int], newer: list[int], gaps: list[int]
) -> None:
    older = list(pairwise(rows))
    fresh = tuple(zip(newer[::2], newer[1::2], strict=False))
    holes = tuple(Gap(a, b, "") for a, b in zip(gaps[::2], gaps[1::2], strict=False))
    cover = Cover("t", start, fresh, holes)
    kept = cover.keeps(np.array([a for a, _ in older]), np.array([b for _, b in older]))
    assert kept.tolist() == [
        end > start
        and not any(a < end and base < b for a, b in fresh)
        and not any(gap.start <= max(base, start) and end <= gap.end for gap in holes)
        for base, end in older
    ]


@pytest.mark.parametrize("shop", ["local"], indirect=True)
def test_many_pages_are_read_by_several_tasks_and_not_by_the_driver(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 70_000
    log = shop.store.log
    state, cursor = log.snapshot()
    part = state.topic("orders").partition(0)
    assert part.index is not None
    for n in range(count):
        row = Row(n, n + 1, 1, SEGMENT, n.to_bytes(16, "little"), 10, 10, 0, 0, n, n, n, 1)
        part.index.append(row)
    part.rows = part.end = count
    pages = write_checkpoint(log.files, state, cursor, uuid.uuid4, began=log.files.now())
    reads: list[object] = []
    monkeypatch.setattr(segment_rows, "_read", lambda *args: reads.append(args))
    tasks = _tasks(shop, "segments")
    monkeypatch.undo()
    assert (pages > 16, 1 < len(tasks) < pages, reads) == (True, True, [])
    assert all(len(pickle.dumps(task)) < 10_000 for task in tasks)
    rows = _read(shop, "segments", tasks)
    assert [row["base_offset"] for row in rows] == list(range(count))


def test_large_small_tables_are_shared_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "_TASK_ROWS", 3)
    for n in range(8):
        shop.create(f"t{n}")
    assert [len(_read(shop, "topics", [task])) for task in _tasks(shop, "topics")] == [3, 3, 3]


REFUSED = {
    "misspelt": ({"table": "segmets"}, "expected one of .*did you mean 'segments'"),
    "subscribed": ({"table": "topics", "subscribe": "orders"}, "'subscribe' chooses records"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_table_that_can_not_be_meant_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(kmq.InvalidRequestError, match=message):
        KmqDataSource({"path": "x", **options}).schema()


@pytest.mark.parametrize("shop", ["local"], indirect=True)
def test_a_table_is_no_stream_and_has_its_own_columns(shop: Shop) -> None:
    source = KmqDataSource({"path": shop.url, "table": "topics"})
    with pytest.raises(kmq.InvalidRequestError, match="the store's state is no stream"):
        source.streamReader(source.schema()).latestOffset()
    with pytest.raises(kmq.InvalidRequestError, match="the columns of table 'topics' are fixed"):
        source.reader(table_spark_schema("queues"))


def test_pages_that_are_collected_while_a_table_is_made_are_looked_for_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send("orders", 0, 4)
    shop.store.seal()
    shop.store.checkpoint()
    shop.commit("billing", "orders", {0: 1})
    made, moves = ROWS["groups"], iter([True])

    def moved(log: CommitLog, state: StoreState) -> list[Any]:
        if next(moves, False):
            shop.send("orders", 0, 1)
            shop.store.seal()
            shop.store.checkpoint()
            shop.store.collect(grace=0)
        return list(made(log, state))

    monkeypatch.setattr(table_reader, "ROWS", {**ROWS, "groups": moved})
    (lag,) = {row["lag"] for row in _read(shop, "groups") if row["partition"] == 0}
    assert lag == 4
