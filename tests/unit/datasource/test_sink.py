"""Finds rows that a write loses, repeats, misplaces or lets through, without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.datasource.executor import staged_output
from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.options.sink_options import SinkOptions
from kmq_spark.datasource.sink import merging
from kmq_spark.datasource.sink.sink import Written, open_sink
from kmq_spark.datasource.writer import KmqBatchWriter, KmqStreamWriter
from kmq_storage.errors import InvalidRequestError, NotFoundError, QueueFullError
from kmq_storage.format.records import PROPERTY_TYPE
from tests.spark.shop import Shop

#: What a record is, wherever it stands.
_KEPT = ("key", "value", "timestamp", "headers", "properties")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _task(
    shop: Shop,
    *batches: pa.RecordBatch,
    topic: str | None = "orders",
    task: int = 0,
    query: str | None = None,
) -> Written:
    sink = pickle.loads(pickle.dumps(open_sink(SinkOptions(url=shop.url, topic=topic))))
    written = write_task(sink, iter(batches), task=task, query=query)
    return pickle.loads(pickle.dumps(written))


def _commit(shop: Shop, messages: Iterable[Written | None]) -> None:
    KmqBatchWriter(open_sink(SinkOptions(url=shop.url, topic=None))).commit(list(messages))


def _commit_batch(shop: Shop, number: int, *messages: Written | None) -> None:
    writer = KmqStreamWriter(open_sink(SinkOptions(url=shop.url, topic=None)))
    writer.commit(list(messages), number)


def _rows(values: Iterable[object], **columns: object) -> pa.RecordBatch:
    arrays = {"value": pa.array(values)} | {
        name: column if isinstance(column, pa.Array) else pa.array(column)
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def _read(shop: Shop, topic: str = "orders") -> list[dict[str, object]]:
    return shop.store.read(topic).read_all().to_pylist()


def test_text_and_bytes_arrive_as_bytes_with_key_headers_and_time(shop: Shop) -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    rows = _rows(
        ["grün", None],
        key=["k", None],
        headers=pa.array([[("h", b"1"), ("h", None)], None], HEADERS),
        timestamp=pa.array([when, None], pa.timestamp("us", tz="Europe/Berlin")),
        other=[1, 2],
    )
    before = datetime.now(UTC)
    _commit(shop, [_task(shop, rows)])
    keyed, keyless = sorted(_read(shop), key=lambda row: row["key"] is None)
    assert (keyed["key"], keyed["value"]) == (b"k", "grün".encode())
    assert keyed["timestamp"] == when
    assert keyed["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (keyless["key"], keyless["value"], keyless["headers"]) == (None, None, None)
    assert before <= keyless["timestamp"] <= datetime.now(UTC)


def test_keyed_rows_go_where_the_python_producer_puts_them(shop: Shop) -> None:
    keys = [b"key-%d" % n for n in range(200)]
    _commit(shop, [_task(shop, _rows(keys, key=keys))])
    by_spark = {row["value"]: row["partition"] for row in _read(shop)}
    with shop.store.producer() as producer:
        sent = producer.send_batch("orders", keys, keys).result(timeout=30)
    assert by_spark == dict(zip(keys, (each.partition for each in sent), strict=True))


def test_a_partition_column_decides_where_it_is_not_null(shop: Shop) -> None:
    chosen = pa.array([2, None, 2], pa.int32())
    _commit(shop, [_task(shop, _rows([b"a", b"b", b"c"], partition=chosen), task=1)])
    assert {row["value"]: row["partition"] for row in _read(shop)} == {b"a": 2, b"b": 1, b"c": 2}


def test_keyless_rows_of_different_tasks_and_batches_spread_over_the_partitions(
    shop: Shop,
) -> None:
    _commit(shop, [_task(shop, _rows([b"x"]), task=number) for number in range(3)])
    _commit(shop, [_task(shop, *[_rows([b"y"])] * 3)])
    assert {p: end for p, (_, end) in shop.store.offsets("orders").items()} == {0: 2, 1: 2, 2: 2}


def test_a_topic_column_writes_many_topics_in_one_commit(shop: Shop) -> None:
    shop.create("returns")
    lsn = shop.lsn()
    rows = _rows([b"a", b"b", b"c"], topic=["orders", "returns", "orders"])
    _commit(shop, [_task(shop, rows, topic=None)])
    assert shop.lsn() == lsn + 1
    assert sorted(shop.values("orders")) == [b"a", b"c"]
    assert shop.values("returns") == [b"b"]


def test_one_commit_writes_typed_topics_of_different_schemas(shop: Shop) -> None:
    shop.create("sales", 2, schema=pa.schema([("id", pa.int64()), ("price", pa.float64())]))
    shop.create("visits", 1, schema=pa.schema([("id", pa.int64()), ("topic", pa.string())]))
    lsn = shop.lsn()
    rows = pa.RecordBatch.from_pydict(
        {
            "_topic": ["sales", "visits", "sales"],
            "id": [1, 2, 3],
            "price": [0.5, None, None],
            "topic": [None, "of the visit", "ignored"],
            "_partition": pa.array([1, None, 1], pa.int32()),
        }
    )
    _commit(shop, [_task(shop, rows, topic=None)])
    assert shop.lsn() == lsn + 1
    sales, visits = _read(shop, "sales"), _read(shop, "visits")
    assert [(row["id"], row["price"], row["_partition"]) for row in sales] == [
        (1, 0.5, 1),
        (3, None, 1),
    ]
    assert [(row["id"], row["topic"]) for row in visits] == [(2, "of the visit")]


def test_properties_are_kept_as_text_or_with_their_types(shop: Shop) -> None:
    text = pa.map_(pa.string(), pa.string())
    typed = pa.map_(pa.string(), PROPERTY_TYPE)
    values = [dict.fromkeys(PROPERTY_TYPE.names) | each for each in ({"int": 7}, {"bool": False})]
    rows = [
        pa.array([None, [("a", "1"), ("b", "")], []], text),
        pa.array([[("skipped", "x")], [("a", "1")]], text).slice(1),
        pa.array([[("n", values[0]), ("f", values[1])]], typed),
        pa.array([[("a", "large")]], pa.map_(pa.large_string(), pa.large_string())),
    ]
    zero = [pa.array([0] * len(each), pa.int32()) for each in rows]
    batches = [
        _rows([b"%d" % n] * len(each), partition=p, properties=each)
        for n, (each, p) in enumerate(zip(rows, zero, strict=True))
    ]
    _commit(shop, [_task(shop, *batches)])
    with shop.store.consumer(topics=["orders"]) as consumer:
        found = [record.properties for record in consumer.consume(10, timeout=5.0)]
    assert found == [
        {},
        {"a": "1", "b": ""},
        {},
        {"a": "1"},
        {"n": 7, "f": False},
        {"a": "large"},
    ]


def test_what_a_producer_sent_is_the_same_after_a_write_of_what_was_read(shop: Shop) -> None:
    shop.create("copies", 1)
    with shop.store.producer() as producer:
        when = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        more = {"n": 2**62, "f": 0.1, "t": "ü", "b": b"\0", "y": True}
        producer.send("orders", b"v", b"k", headers=[("h", b"1")] * 2, properties=more)
        producer.send("orders", None, b"k", timestamp=when).result(30)
    read = shop.store.read("orders", columns=[*_KEPT]).read_all().to_batches()
    _commit(shop, [_task(shop, *read, topic="copies")])
    copied = shop.store.read("copies", columns=[*_KEPT]).read_all()
    assert copied.to_pylist() == pa.Table.from_batches(read).to_pylist()


def test_the_large_types_that_spark_can_be_set_to_send_are_taken(shop: Shop) -> None:
    rows = _rows(
        pa.array(["a", "b"], pa.large_string()),
        key=pa.array([b"k", None], pa.large_binary()),
        topic=pa.array(["orders", "orders"], pa.large_string()),
    )
    _commit(shop, [_task(shop, rows, topic=None)])
    assert sorted(shop.values("orders")) == [b"a", b"b"]


def test_the_topic_option_goes_before_the_column(shop: Shop) -> None:
    _commit(shop, [_task(shop, _rows([b"a"], topic=["nowhere"]))])
    assert shop.values("orders") == [b"a"]


def test_small_tasks_write_no_file_and_share_a_batch_per_partition(shop: Shop) -> None:
    zero = pa.array([0], pa.int32())
    _commit(shop, [_task(shop, _rows([b"%d" % n], partition=zero), task=n) for n in range(50)])
    assert shop.values("orders") == [b"%d" % n for n in range(50)]
    assert len(shop.store.log.state.topic("orders").places(0, 0, 50)) == 1
    assert not list(Path(shop.url).glob("staged/*"))


def test_large_tasks_stage_arrow_files_that_any_arrow_tool_opens(shop: Shop) -> None:
    rows = _rows([b"x" * 100] * 10_000, partition=pa.array([1] * 10_000, pa.int32()))
    _commit(shop, [_task(shop, rows)])
    (file,) = Path(shop.url).glob("staged/*")
    table = pa.ipc.open_file(file).read_all()
    assert table.num_rows == 10_000
    assert table.schema.metadata[b"kmq.topic"] == b"orders"
    assert len(_read(shop)) == 10_000


def test_a_task_with_much_data_writes_files_as_it_goes_and_keeps_the_order(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (merging, staged_output):
        monkeypatch.setattr(module, "FILE_BYTES", 5_000)
    monkeypatch.setattr(staged_output, "_IN_FLIGHT_BYTES_MAX", 8_000)
    monkeypatch.setattr(staged_output, "_MESSAGE_BYTES_MAX", 500)
    values = [b"%05d" % n for n in range(3_000)]
    zero = pa.array([0] * 100, pa.int32())
    batches = [_rows(values[n : n + 100], partition=zero) for n in range(0, 3_000, 100)]
    written = _task(shop, *batches)
    assert {entry.rows for entry in written.staged} == {1_000}
    _commit(shop, [written])
    assert shop.values("orders") == values


def test_a_task_of_many_partitions_writes_files_when_all_of_them_wait_for_much(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_output, "_WAITING_BYTES_MAX", 15_000)
    thirds = pa.array([n % 3 for n in range(300)], pa.int32())
    written = _task(shop, *[_rows([b"%05d" % n] * 300, partition=thirds) for n in range(4)])
    assert [(entry.partition, entry.rows) for entry in written.staged] == [
        (n, 400) for n in (0, 1, 2)
    ]
    _commit(shop, [written])
    assert shop.values("orders") == 3 * [b"%05d" % n for n in range(4) for _ in range(100)]


def test_a_task_of_empty_records_writes_them_when_they_wait_for_much(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_output, "_WAITING_BYTES_MAX", 5_000)
    zero = pa.array([0] * 400, pa.int32())
    written = _task(shop, *[_rows([b""] * 400, partition=zero)] * 2)
    assert [entry.rows for entry in written.staged] == [800]
    _commit(shop, [written])
    assert shop.values("orders") == [b""] * 800


def test_batches_with_and_without_keys_and_headers_lie_in_one_file(shop: Shop) -> None:
    zero = pa.array([0], pa.int32())
    batches = [
        _rows([b"a"], partition=zero),
        _rows([b"b"], key=[b"k"], partition=zero),
        _rows([b"c"], headers=pa.array([[("h", b"1")]], HEADERS), partition=zero),
    ]
    _commit(shop, [_task(shop, *batches)])
    assert [(row["value"], row["key"], row["headers"]) for row in _read(shop)] == [
        (b"a", None, None),
        (b"b", b"k", None),
        (b"c", None, [{"key": "h", "value": b"1"}]),
    ]


def test_nothing_is_visible_before_the_commit_and_nothing_after_an_abort(shop: Shop) -> None:
    lsn = shop.lsn()
    rows = _rows([b"x" * 1_000] * 1_000)
    written = _task(shop, rows)
    assert shop.values("orders") == []
    KmqBatchWriter(open_sink(SinkOptions(url=shop.url, topic="orders"))).abort([written, None])
    assert (shop.lsn(), shop.values("orders")) == (lsn, [])


def test_an_empty_batch_writes_nothing(shop: Shop) -> None:
    lsn = shop.lsn()
    _commit_batch(shop, 0, _task(shop, query="q"), _task(shop, _rows([]).slice(0), query="q"))
    _commit_batch(shop, 1)
    _commit(shop, [])
    assert shop.lsn() == lsn


REFUSED_ROWS = {
    "unknown partition": (
        _rows([b"a"], partition=pa.array([3], pa.int32())),
        InvalidRequestError,
        "orders has partitions 0 to 2, not 3: leave the partition out, or drop its column",
    ),
    "negative partition": (
        _rows([b"a"], partition=pa.array([-1], pa.int32())),
        InvalidRequestError,
        "negative",
    ),
    "too large": (_rows([b"x" * 2_000_000]), InvalidRequestError, "2000000 bytes is too large"),
    "header without a name": (
        _rows([b"a"], headers=pa.array([[(None, b"1")]], HEADERS)),
        InvalidRequestError,
        "header without a name",
    ),
    "property without a name": (
        _rows([b"a"], properties=pa.array([[("", "1")]], pa.map_(pa.string(), pa.string()))),
        InvalidRequestError,
        "a property without a name",
    ),
    "property without a value": (
        _rows([b"a"], properties=pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))),
        InvalidRequestError,
        "a property whose value is null",
    ),
    "no topic": (
        _rows([b"a", b"b"], topic=["orders", None]),
        InvalidRequestError,
        "null topic present in the data: column 'topic' is null in a row",
    ),
    "untyped topic as typed": (
        pa.RecordBatch.from_pydict({"_topic": ["orders"], "topic": ["x"], "id": [1]}),
        InvalidRequestError,
        "orders is untyped: .* in a column 'topic', not '_topic'",
    ),
    "unknown topic": (_rows([b"a"], topic=["nowhere"]), NotFoundError, r"Topic\[nowhere\]"),
}


@pytest.mark.parametrize(
    ("rows", "error", "message"), REFUSED_ROWS.values(), ids=REFUSED_ROWS.keys()
)
def test_a_row_that_can_not_be_stored_fails_its_task_and_nothing_is_written(
    shop: Shop, rows: pa.RecordBatch, error: type[kmq.KmqError], message: str
) -> None:
    lsn = shop.lsn()
    topic = None if "topic" in rows.schema.names else "orders"
    with pytest.raises(error, match=message) as raised:
        _task(shop, rows, topic=topic)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (type(raised.value), str(raised.value))
    assert shop.lsn() == lsn


def test_a_topic_that_is_full_refuses_the_whole_write(shop: Shop) -> None:
    shop.create("small", 1, capacity=10)
    with pytest.raises(QueueFullError, match="topic small is full"):
        _commit(shop, [_task(shop, _rows([b"x"] * 11), topic="small")])
    assert shop.values("small") == []


def test_an_unknown_topic_or_store_is_found_before_any_task(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"Topic\[order\] doesn't exist.* mean 'orders'\?"):
        open_sink(SinkOptions(url=shop.url, topic="order"))
    with pytest.raises(NotFoundError, match=r"Store\[.*\] doesn't exist"):
        open_sink(SinkOptions(url=str(tmp_path / "nowhere"), topic="orders"))


def test_a_topic_that_a_row_names_and_that_is_not_there_is_told_with_the_column(shop: Shop) -> None:
    rows = _rows([b"x"], topic=["order"])
    with pytest.raises(NotFoundError, match=r"Column 'topic' names it .*did you mean 'orders'"):
        _task(shop, rows, topic=None)
    no_text = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidRequestError, match=r"column 'topic' holds .* isn't UTF-8"):
        _task(shop, _rows([b"x"], topic=no_text), topic=None)


tasks = st.lists(
    st.lists(
        st.lists(st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.integers(0, 99))),
        max_size=3,
    ),
    max_size=4,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tasks)
def test_any_tasks_write_every_row_once_in_the_order_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, rows_of_tasks: list[list[list[tuple[bytes, int]]]]
) -> None:
    shop = Shop(tmp_path_factory.mktemp("any") / "shop")
    shop.create("orders", 3)
    messages = []
    for number, batches in enumerate(rows_of_tasks):
        made = [
            _rows(
                pa.array([b"%d" % n for _, n in batch], pa.binary()),
                key=pa.array([key for key, _ in batch], pa.binary()),
            )
            for batch in batches
        ]
        messages.append(_task(shop, *made, task=number))
    _commit(shop, messages)
    sent = [(key, b"%d" % n) for batches in rows_of_tasks for batch in batches for key, n in batch]
    found = [(row["key"], row["value"]) for row in _read(shop)]
    assert sorted(found, key=repr) == sorted(sent, key=repr)
    for key in (b"a", b"b", b"c"):
        assert [each for each in found if each[0] == key] == [
            each for each in sent if each[0] == key
        ]
