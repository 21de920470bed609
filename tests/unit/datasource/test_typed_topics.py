"""Finds typed columns that change on the way to Spark or from it, without a JVM."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ByteType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.source import KmqDataSource
from kmq_storage.errors import InvalidRequestError
from tests.spark.shop import Shop

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("topic", pa.string_view()),
        ("large", pa.uint64()),
        ("tags", pa.list_(pa.uint8())),
    ]
)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("typed", 2, schema=SCHEMA)
    return made


def _source(shop: Shop, **options: str) -> KmqDataSource:
    return KmqDataSource({"path": shop.url, **options})


def _send(shop: Shop, *values: dict[str, object] | None, topic: str = "typed") -> None:
    with shop.store.producer() as producer:
        for value in values:
            producer.send(topic, value, "key", partition=0)


def _read(source: KmqDataSource, schema: StructType) -> list[dict[str, object]]:
    reader = source.reader(schema)
    batches = [
        batch
        for task in reader.partitions()
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(task)))
    ]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_rows_have_own_columns_and_where_they_stand(shop: Shop) -> None:
    _send(shop, {"id": 1, "topic": "mine", "large": 2**64 - 1, "tags": [255]}, None)
    source = _source(shop, subscribe="typed", includeMetadata="true")
    first, gone = _read(source, source.schema())
    assert first.pop("_timestamp") is not None
    assert first == {
        "id": 1,
        "topic": "mine",
        "large": Decimal(2**64 - 1),
        "tags": [255],
        "_topic": "typed",
        "_partition": 0,
        "_offset": 0,
    }
    assert (gone["id"], gone["_offset"]) == (None, 1)


def test_sealed_records_are_read_as_before(shop: Shop) -> None:
    _send(shop, *({"id": n, "topic": str(n)} for n in range(10)))
    source = _source(shop, subscribe="typed", includeMetadata="true")
    before = _read(source, source.schema())
    shop.store.seal()
    assert _read(source, source.schema()) == before
    assert len(before) == 10


def test_a_read_that_was_loaded_before_the_schema_grew_keeps_its_columns(shop: Shop) -> None:
    source = _source(shop, subscribe="typed")
    loaded = source.schema()
    wider = [pa.field("id", pa.int64(), nullable=False), *list(SCHEMA)[1:]]
    shop.store.alter_topic("typed", schema=pa.schema([*wider, pa.field("new", pa.int8())]))
    _send(shop, {"id": 7, "new": 1})
    assert _read(source, loaded) == [{"id": 7, "topic": None, "large": None, "tags": None}]
    assert source.schema()["id"].dataType == LongType()
    _send(shop, {"id": 2**40})
    with pytest.raises(
        InvalidRequestError, match=r"column 'id' holds a value that Spark's int32 .* load it again"
    ):
        _read(source, loaded)


def test_a_read_of_several_topics_goes_on_while_their_schemas_grow_one_after_the_other(
    shop: Shop,
) -> None:
    shop.create("other", schema=SCHEMA)
    source = _source(shop, subscribe="typed,other", includeMetadata="true")
    loaded = source.schema()
    reader = source.reader(loaded)
    shop.store.alter_topic("typed", schema=pa.schema([*SCHEMA, pa.field("new", pa.int8())]))
    _send(shop, {"id": 1, "new": 1})
    _send(shop, {"id": 2}, topic="other")
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    rows = pa.Table.from_batches(batches).select(["id", "_topic"]).to_pylist()
    assert rows == [{"id": 2, "_topic": "other"}, {"id": 1, "_topic": "typed"}]


def test_topics_of_several_schemas_are_read_by_the_columns_that_all_of_them_have(
    shop: Shop,
) -> None:
    shop.create("other", schema=pa.schema([pa.field("new", pa.int8()), *SCHEMA]))
    shop.create("wide", schema=pa.schema([pa.field("id", pa.int64())]))
    _send(shop, {"id": 1})
    _send(shop, {"id": 2, "new": 1}, topic="other")
    source = _source(shop, subscribe="typed,other", columns="_topic,id")
    reader = source.reader(source.schema())
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert rows == [{"_topic": "other", "id": 2}, {"_topic": "typed", "id": 1}]
    with pytest.raises(InvalidRequestError, match=r"only the columns that both have \(option 'col"):
        _source(shop, subscribe="typed,other").schema()
    with pytest.raises(InvalidRequestError, match="'new', which is tinyint in topic other, and no"):
        _source(shop, subscribe="typed,other", columns="id,new").schema()
    with pytest.raises(InvalidRequestError, match=r"'id', which is int in .* bigint in topic wide"):
        _source(shop, subscribe="typed,wide", columns="id").schema()


@pytest.mark.parametrize("other", [None, pa.schema([("id", pa.int64())])])
def test_topics_of_other_columns_are_refused_also_later_ones(
    shop: Shop, other: pa.Schema | None
) -> None:
    source = _source(shop, subscribePattern=".*")
    reader = source.reader(source.schema())
    shop.create("other", schema=other)
    with pytest.raises(InvalidRequestError, match="have different schemas"):
        source.schema()
    with pytest.raises(InvalidRequestError, match=r"topic other (has no column|is untyped)"):
        reader.partitions()


def test_a_pattern_that_matched_nothing_is_loaded_again_for_its_first_typed_topic(
    shop: Shop,
) -> None:
    source = _source(shop, subscribePattern="^later$")
    reader = source.reader(source.schema())
    shop.create("later", schema=pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidRequestError, match=r"later is typed.* none at load\(\), load again"):
        reader.partitions()
    assert source.schema().names == ["id"]


def test_headers_are_no_column_of_a_typed_topic(shop: Shop) -> None:
    with pytest.raises(InvalidRequestError, match="'includeHeaders' is for untyped topics"):
        _source(shop, subscribe="typed", includeHeaders="true").schema()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int8(), ByteType()),
        (pa.uint8(), ShortType()),
        (pa.uint16(), IntegerType()),
        (pa.uint32(), LongType()),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), FloatType()),
        (pa.dictionary(pa.int8(), pa.string()), StringType()),
    ],
)
def test_what_spark_has_not_comes_as_the_next_wider_type(
    shop: Shop, kind: pa.DataType, expected: object
) -> None:
    shop.create("one", schema=pa.schema([("x", kind)]))
    assert _source(shop, subscribe="one").schema()["x"].dataType == expected


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.month_day_nano_interval()])
def test_a_type_without_a_counterpart_is_refused_by_name(shop: Shop, kind: pa.DataType) -> None:
    shop.create("one", schema=pa.schema([("x", kind)]))
    with pytest.raises(InvalidRequestError, match=r"'x' is .* Spark has no type") as refused:
        _source(shop, subscribe="one").schema()
    assert refused.value.context["column"] == "x"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.time64("ns"), 1_234),
        (pa.list_(pa.time64("ns")), [1_234]),
        (pa.struct([("at", pa.time64("ns"))]), {"at": 1_234}),
        (pa.timestamp("ns", "UTC"), 1_234),
    ],
    ids=str,
)
def test_nanoseconds_that_spark_would_cut_off_fail_the_task(
    shop: Shop, kind: pa.DataType, value: object
) -> None:
    schema = pa.schema([("x", kind)])
    shop.create("one", schema=schema)
    source = _source(shop, subscribe="one")
    with shop.store.producer() as producer:
        producer.send_arrow("one", pa.table({"x": pa.array([None], kind)})).result()
        assert len(_read(source, source.schema())) == 1
        producer.send_arrow("one", pa.table({"x": pa.array([value], kind)})).result()
    with pytest.raises(InvalidRequestError, match=r"'x' holds a value that Spark's .* can't"):
        _read(source, source.schema())


ID = StructField("id", IntegerType())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([StructField("topic", StringType())], "'id' for topic typed is missing"),
        ([StructField("id", StringType())], "'id' for topic typed of type string is not int32"),
        ([ID, StructField("_key", LongType())], "'_key' of type int64 is not binary"),
        ([ID, StructField("_timestamp", StringType())], "'_timestamp' of type string must be inst"),
        ([ID, StructField("_headers", StringType())], "'_headers' of type string is not list"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_any_task(
    shop: Shop, fields: list[StructField], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        _source(shop, topic="typed").writer(StructType(fields), overwrite=False)


LOOSE = pa.schema([("name", pa.string()), ("place", pa.string())])
NULLS = pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["NAME", "place"], "'NAME': topic loose has 'name', and letter case counts"),
        (["name", "_Key"], "'_Key': topic loose has '_key', and letter case counts"),
        (
            ["nmae", "place"],
            "'nmae': topic loose has 'name', and the rows lack it; .*takes name, pl",
        ),
        (["name", "Placer"], "'Placer': topic loose has 'place', and the rows lack it; rename it"),
        (["name", "_timestmp"], "'_timestmp': topic loose has '_timestamp', and the rows lack it"),
        (["nom", "_key"], r"has columns name, place, the rows have none of them \(.*nom, _key\)"),
    ],
)


@NULLS
def test_a_frame_whose_columns_would_all_be_null_is_refused(
    shop: Shop, names: list[str], reason: str
) -> None:
    shop.create("loose", schema=LOOSE)
    fields = StructType([StructField(name, StringType()) for name in names])
    with pytest.raises(InvalidRequestError, match=reason):
        _source(shop, topic="loose").writer(fields, overwrite=False)


def test_columns_that_a_typed_topic_does_not_have_are_ignored(shop: Shop) -> None:
    shop.create("loose", schema=LOOSE)
    read = ["key", "value", "topic", "partition", "offset", "timestamp", "headers", "properties"]
    metadata = ["_topic", "_partition", "_offset", "_timestamp"]
    for names in (["name", *read], ["name", *metadata], ["name", "place", "Name", "places"]):
        kinds = {"_partition": IntegerType(), "_timestamp": TimestampType()}
        fields = [StructField(name, kinds.get(name, StringType())) for name in names]
        _source(shop, topic="loose").writer(StructType(fields), overwrite=False)


@NULLS
def test_rows_that_name_a_topic_whose_columns_would_be_null_are_refused(
    shop: Shop, names: list[str], reason: str
) -> None:
    shop.create("loose", schema=LOOSE)
    fields = StructType([StructField(name, StringType()) for name in ["_topic", *names]])
    writer = _source(shop).writer(fields, overwrite=False)
    row = {"_topic": ["loose"], **{name: ["x"] for name in names}}
    with pytest.raises(InvalidRequestError, match=reason):
        write_task(writer._sink, [pa.RecordBatch.from_pydict(row)], task=0)


def test_rows_that_name_topics_of_other_columns_give_each_its_own(shop: Shop) -> None:
    shop.create("loose", schema=LOOSE)
    shop.create("other", schema=pa.schema([("place", pa.string()), ("size", pa.int64())]))
    row = {"_topic": ["loose", "other"], "name": ["n", None], "place": ["p", "q"], "size": [1, 2]}
    batch = pa.RecordBatch.from_pydict(row)
    fields = [StructField(name, StringType()) for name in ("_topic", "name", "place")]
    schema = StructType([*fields, StructField("size", LongType())])
    writer = _source(shop).writer(schema, overwrite=False)
    writer.commit([write_task(writer._sink, [batch], task=0)])
    found = shop.store.read("other", columns=["place", "size"]).read_all()
    assert found.to_pylist() == [{"place": "q", "size": 2}]


def test_tasks_write_own_columns_and_what_stands_beside_them(shop: Shop) -> None:
    fields = [StructField("id", IntegerType()), StructField("_key", StringType())]
    writer = _source(shop, topic="typed").writer(StructType(fields), overwrite=False)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "_key": ["a", "a"], "other": [0, 0]})
    message = write_task(writer._sink, [batch], task=0)
    writer.commit([pickle.loads(pickle.dumps(message))])
    table = shop.store.read("typed", columns=["id", "_key"]).read_all()
    assert table.to_pylist() == [{"id": 1, "_key": b"a"}, {"id": 2, "_key": b"a"}]


def test_a_typed_topic_is_not_written_to_by_a_topic_column(shop: Shop) -> None:
    fields = [StructField("value", StringType()), StructField("topic", StringType())]
    writer = _source(shop).writer(StructType(fields), overwrite=False)
    batch = pa.RecordBatch.from_pydict({"value": ["x"], "topic": ["typed"]})
    with pytest.raises(InvalidRequestError, match="topic typed is typed: write to it with option"):
        write_task(writer._sink, [batch], task=0)


WIDER = pa.schema([("large", pa.uint64()), ("half", pa.float16())])


def _write_wider(shop: Shop, large: list[object], half: list[object]) -> None:
    frame = StructType([StructField("large", DecimalType(20, 0)), StructField("half", FloatType())])
    writer = _source(shop, topic="wider").writer(frame, overwrite=False)
    columns = {"large": pa.array(large, pa.decimal128(20, 0)), "half": pa.array(half, pa.float32())}
    writer.commit([write_task(writer._sink, [pa.record_batch(columns)], task=0)])


def test_what_spark_reads_as_a_wider_type_is_written_back(shop: Shop) -> None:
    shop.create("wider", schema=WIDER)
    _write_wider(shop, [2**64 - 1, None, 0], [1.5, None, float("inf")])
    rows = shop.store.read("wider", columns=WIDER.names).read_all().cast(WIDER)
    assert rows["large"].to_pylist() == [2**64 - 1, None, 0]
    assert rows["half"].to_pylist() == [1.5, None, float("inf")]
    source = _source(shop, subscribe="wider")
    assert _read(source, source.schema())[0] == {"large": Decimal(2**64 - 1), "half": 1.5}


#: What only Spark's types don't say is inside of a list, a map or a struct, and values of it.
DEEP = {
    "large": (pa.list_(pa.uint64()), [2**64 - 1, None]),
    "half": (pa.struct([("at", pa.float16()), ("of", pa.uint64())]), {"at": 1.5, "of": 2**63}),
    "by_name": (pa.map_(pa.string(), pa.list_(pa.float16())), [("a", [0.5, float("inf")])]),
    "digest": (pa.binary(4), b"abcd"),
    "digests": (pa.list_(pa.binary(4)), [b"abcd", None]),
}


@pytest.mark.parametrize("name", DEEP)
def test_a_frame_that_was_read_is_written_back_whatever_is_inside_of_its_columns(
    shop: Shop, name: str
) -> None:
    kind, value = DEEP[name]
    shop.create("deep", schema=pa.schema([(name, kind)]))
    with shop.store.producer() as producer:
        producer.send_batch("deep", [{name: value}, {name: None}])
    source = _source(shop, subscribe="deep")
    reader = source.reader(schema := source.schema())
    (task,) = reader.partitions()
    writer = _source(shop, topic="deep").writer(schema, overwrite=False)
    writer.commit([write_task(writer._sink, reader.read(task), task=0)])
    found = shop.store.read("deep").read_all()[name].to_pylist()
    assert found == [value, None] * 2


def test_a_number_inside_of_a_list_that_would_be_rounded_on_its_way_back_is_refused(
    shop: Shop,
) -> None:
    shop.create("deep", schema=pa.schema([("half", pa.map_(pa.string(), pa.float16()))]))
    schema = StructType().add("half", MapType(StringType(), FloatType()))
    writer = _source(shop, topic="deep").writer(schema, overwrite=False)
    column = pa.array([None, [("nan", float("nan")), ("a", 0.1)]], pa.map_("str", "float32"))
    batch = pa.record_batch({"half": column})
    with pytest.raises(InvalidRequestError, match=r"'half' .* halffloat.* it would be rounded"):
        write_task(writer._sink, [batch], task=0)
    written = write_task(writer._sink, [batch.slice(0, 1)], task=0)
    assert written.small or written.staged


@pytest.mark.parametrize(
    ("large", "half", "reason"),
    [
        (2**64, 0.0, "'large' for topic wider holds a value that uint64 can't"),
        (-1, 0.0, "'large' for topic wider holds a value that uint64 can't"),
        (0, 0.1, "'half' for topic wider holds a value that halffloat can't: it would be rounded"),
    ],
)
def test_a_value_that_would_change_on_its_way_back_is_refused(
    shop: Shop, large: int, half: float, reason: str
) -> None:
    shop.create("wider", schema=WIDER)
    with pytest.raises(InvalidRequestError, match=reason):
        _write_wider(shop, [large], [half])
