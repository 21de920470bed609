"""Finds options that are misread, silently ignored, or refused without saying what to do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from kmq_spark.datasource.options.bounds import Bound
from kmq_spark.datasource.options.instants import Instant
from kmq_spark.datasource.options.known_options import SINK_OPTIONS, SOURCE_OPTIONS
from kmq_spark.datasource.options.sink_options import parse_sink_options
from kmq_spark.datasource.options.source_options import (
    SourceOptions,
    check_stream,
    parse_source_options,
    warn_of_stream_options,
)
from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_storage.errors import InvalidRequestError
from tests.support.sources import ROOT

_WAYS = ("subscribe", "subscribePattern", "assign", "table")


def _source(**options: str) -> SourceOptions:
    return parse_source_options({"path": "/data/shop", "subscribe": "orders", **options})


def test_what_is_not_given_has_kafkas_defaults() -> None:
    options = _source()
    assert options.url == "/data/shop"
    assert options.subscription.topics == ("orders",)
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.starting is options.ending is options.group is None
    assert options.max_offsets_per_trigger is options.columns is None
    assert options.tasks == TaskLimits()
    assert options.max_trigger_delay == 15 * 60
    assert options.latest_when_untimed is False


def test_every_option_is_understood_in_any_letter_case() -> None:
    given = {
        "store": "/data/shop",
        "subscribe": " b, a ,a,",
        "partitions": "0, 2-3",
        "startingOffsets": "Earliest",
        "startingOffsetsByTimestampStrategy": "Latest",
        "endingOffsets": '{"a":{"0":-1,"*":7}}',
        "maxOffsetsPerTrigger": "9223372036854775807",
        "minOffsetsPerTrigger": "15",
        "maxBytesPerTrigger": "64M",
        "maxTriggerDelay": "90s",
        "minPartitions": "4",
        "maxRecordsPerPartition": "20",
        "maxBytesPerPartition": "500kb",
        "columns": "value, offset",
        "includeHeaders": "TRUE",
        "includeProperties": "true",
        "includeMetadata": "True",
        "archive": "/data/lake",
        "failOnDataLoss": "False",
        "group": "billing",
    }
    parsed = [
        parse_source_options({spell(name): value for name, value in given.items()})
        for spell in (str, str.upper, str.lower)
    ]
    assert parsed[0] == parsed[1] == parsed[2]
    assert parsed[0].subscription.topics == ("a", "b")
    assert parsed[0].subscription.partitions_of("a", 9) == [0, 2, 3]
    assert parsed[0] == SourceOptions(
        url="/data/shop",
        subscription=parsed[0].subscription,
        starting=Bound(option="startingOffsets", word="earliest"),
        ending=Bound(option="endingOffsets", named={"a": {0: -1}}, rest={"a": 7}),
        latest_when_untimed=True,
        max_offsets_per_trigger=2**63 - 1,
        min_offsets_per_trigger=15,
        max_bytes_per_trigger=64 << 20,
        max_trigger_delay=90,
        tasks=TaskLimits(min_partitions=4, max_records=20, max_bytes=500 << 10),
        columns=("value", "offset"),
        include_headers=True,
        include_properties=True,
        include_metadata=True,
        fail_on_data_loss=False,
        group="billing",
        archive="/data/lake",
    )
    assert pickle.loads(pickle.dumps(parsed[0])) == parsed[0]


REFUSED = {
    "misspelt": ({"minPartition": "4"}, "did you mean 'minPartitions'"),
    "without any likeness": ({"zzz": "1"}, "known are path, store, subscribe"),
    "brokers": ({"kafka.bootstrap.servers": "localhost:9092"}, "load\\(path\\)"),
    "group id": ({"kafka.group.id": "g"}, "use option 'group'"),
    "isolation": ({"kafka.isolation.level": "read_committed"}, "committed records only"),
    "any client setting": ({"kafka.some.thing": "1"}, "no Kafka client"),
    "deserializer": ({"kafka.key.deserializer": "x"}, "binary columns: cast or decode"),
    "reset": ({"kafka.auto.offset.reset": "latest"}, "use option 'startingOffsets'"),
    "checkpoint": ({"checkpointLocation": "/c"}, "an option of its writeStream"),
    "auto commit": ({"kafka.enable.auto.commit": "true"}, "use option 'group'"),
    "credentials": ({"kafka.sasl.jaas.config": "x"}, "that of its storage"),
    "group prefix": ({"groupIdPrefix": "x"}, "option 'groupidprefix' is unknown; groups are nev"),
    "poll timeout": ({"kafkaConsumer.pollTimeoutMs": "5"}, "kmq polls no broker: remove it"),
    "fetch retries": ({"fetchOffset.numRetries": "5"}, "kmq polls no broker: remove it"),
    "fetch pauses": ({"fetchOffset.retryIntervalMs": "5"}, "kmq polls no broker: remove it"),
    "of a table": ({"provider": "kmq"}, "CREATE TEMPORARY VIEW name USING kmq OPTIONS"),
    "of a table's place": ({"option.subscribe": "orders"}, "kmq makes no tables in a catalog"),
    "queues of an archive": (
        {"queues": "a", "archive": "/data/lake"},
        "choose by column 'key' the",
    ),
    "a mapping for a client": ({"storage_options": "{}"}, "of its own, as 'storage.endpoint'"),
    "a list of paths": ({"paths": '["/a","/b"]'}, r"one store: load\(path\) with its text"),
    "a partition twice": ({"startingOffsets": '{"a":{"0":1,"00":2}}'}, "once, not a.0. twice"),
    "a name twice": ({"startingOffsets": '{"a":{"0":1},"a":{"*":2}}'}, "'a' is there twice"),
    "a partition of endless digits": (
        {"startingOffsets": json.dumps({"a": {"9" * 5000: 1}})},
        "expected JSON such as",
    ),
    "of the sink": ({"topic": "orders"}, "'topic' belongs to a write"),
    "minPartitions 0": ({"minPartitions": "0"}, "'minPartitions' is '0': expected a whole number"),
    "minPartitions -1": ({"minPartitions": "-1"}, "is '-1': expected a whole number"),
    "minPartitions 1.0": ({"minPartitions": "1.0"}, "is '1.0': expected a whole number"),
    "minPartitions a": ({"minPartitions": "a"}, "is 'a': expected a whole number"),
    "too large a limit": ({"maxOffsetsPerTrigger": str(2**63)}, f"number from 1 to {2**63 - 1}"),
    "endless digits": ({"maxOffsetsPerTrigger": "9" * 5000}, "expected a whole number"),
    "no records per task": ({"maxRecordsPerPartition": "0"}, "is '0': expected a whole number"),
    "no minimum": ({"minOffsetsPerTrigger": "0"}, "'minOffsetsPerTrigger' is '0': expected a wh"),
    "a minimum above the maximum": (
        {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
        "'minOffsetsPerTrigger' is '20': expected at most maxOffsetsPerTrigger .15.",
    ),
    "no size": ({"maxBytesPerTrigger": "64x"}, "'maxBytesPerTrigger' is '64x': expected a size"),
    "size of nothing": ({"maxBytesPerPartition": "0m"}, "is '0m': expected a size such as 64m"),
    "no length of time": ({"maxTriggerDelay": "15 minutes"}, "expected a length of time such as"),
    "no strategy": (
        {"startingOffsetsByTimestampStrategy": "earliest"},
        "is 'earliest': expected one of error, latest",
    ),
    "no instant": ({"startingTimestamp": "yesterday"}, "'startingTimestamp' is 'yesterday': exp"),
    "an instant without zone": ({"endingTimestamp": "2024-05-06T07:08:09"}, "with a zone"),
    "no unit": ({"startingTimestamp": "-10y"}, "or -10m, -2h30m"),
    "latest as a time": ({"endingOffsetsByTimestamp": '{"a":{"*":-1}}'}, "not -1, which is 'lat"),
    "times as a list": ({"startingOffsetsByTimestamp": "[1]"}, "expected JSON such as"),
    "a time in words": ({"endingOffsetsByTimestamp": '{"a":{"0":"x"}}'}, "expected JSON such as"),
    "broken ranges": ({"partitions": "0,x"}, "'partitions' is '0,x': expected numbers"),
    "backward ranges": ({"partitions": "5-3"}, "'partitions' is '5-3': expected numbers"),
    "a column twice": ({"columns": "value,value"}, "names of columns with commas between them"),
    "no column": ({"columns": "value,"}, "names of columns with commas between them"),
    "no table": ({"table": "orders"}, "'table' is 'orders': expected one of topics, partitions"),
    "table beside topics": ({"table": "topics"}, "option 'subscribe' chooses records"),
    "no boolean": ({"includeHeaders": "yes"}, "'includeHeaders' is 'yes': expected true or false"),
    "empty subscribe": ({"subscribe": " , "}, "'subscribe' is ' , ': expected topic names"),
    "hostile topic": ({"subscribe": "../x"}, "topic name '../x' is not allowed"),
    "two ways": ({"assign": '{"orders":[0]}'}, "exactly one of .*subscribe and assign"),
    "two stores": ({"store": "/elsewhere"}, "'store' is '/elsewhere'"),
    "empty group": ({"group": ""}, "group name has 0 characters"),
    "group of nobody": ({"startingOffsets": "group"}, "an option 'group'"),
    "unknown word": ({"startingOffsets": "first"}, "'earliest', 'latest', 'group' or JSON"),
    "broken JSON": ({"startingOffsets": '{"orders":{"0":'}, "expected JSON such as"),
    "no object": ({"startingOffsets": '{"orders":[0]}'}, "expected JSON such as"),
    "no number": ({"startingOffsets": '{"orders":{"0":true}}'}, "expected JSON such as"),
    "no partition": ({"startingOffsets": '{"orders":{"x":1}}'}, "expected JSON such as"),
    "below earliest": ({"startingOffsets": '{"orders":{"0":-3}}'}, "no -3 for orders\\[0\\]"),
    "above the largest": (
        {"startingOffsets": '{"orders":{"0":9223372036854775808}}'},
        "no 9223372036854775808 for orders",
    ),
    "endless brackets": (
        {"startingOffsets": '{"orders":' + "[" * 100_000},
        "expected JSON such as",
    ),
    "ids of no topic": (
        {"startingOffsets": '{"#kmq":{"ids":{"orders":"x"}},"orders":{"0":1}}'},
        "'#kmq' as a query's progress has it",
    ),
    "an archive nowhere": ({"archive": " "}, "'archive' is ' ': expected the folder or URL"),
    "end at earliest": ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest'"),
    "end at -2": ({"endingOffsets": '{"orders":{"0":-2}}'}, "no earliest for orders\\[0\\]"),
    "a start beyond an end": (
        {
            "startingOffsets": '{"orders":{"0":5,"*":-2}}',
            "endingOffsets": '{"orders":{"0":3,"*":9}}',
        },
        "orders-0: startingOffsets 5 is beyond endingOffsets 3",
    ),
    "bounds of other partitions": (
        {"startingOffsets": '{"orders":{"0":5,"1":2}}', "endingOffsets": '{"orders":{"0":7}}'},
        r"'startingOffsets' and 'endingOffsets' name different partitions of orders: \[0, 1\] and",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_option_is_refused_with_its_name_its_value_and_what_to_do(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        _source(**options)


@pytest.mark.parametrize("text", ["", "{", "[1]", "a/b", "x" * 400, "\0", ",", "-5", '{"a/b":[0]}'])
def test_no_option_is_refused_without_its_name(text: str) -> None:
    url = {"path": "/data/shop"}
    subscribed = {**url, "subscribe": "orders"}
    of_reads = {
        option: {**(url if option in _WAYS else subscribed), option: text}
        for option in SOURCE_OPTIONS
    }
    of_writes = {option: {**url, option: text} for option in SINK_OPTIONS}
    for parse, tried in ((parse_source_options, of_reads), (parse_sink_options, of_writes)):
        for option, given in tried.items():
            refused = _refusal(parse, given)
            assert refused is None or f"option {option!r}" in str(refused)
            assert refused is None or refused.context["option"] == option


def _refusal(
    parse: Callable[[dict[str, str]], object], given: dict[str, str]
) -> InvalidRequestError | None:
    try:
        parse(given)
    except InvalidRequestError as refused:
        return refused
    return None


def test_names_of_columns_may_hold_commas_in_a_json_array() -> None:
    assert _source(columns='["a, b", "c.d"]').columns == ("a, b", "c.d")
    assert _source(columns="[1], c.d").columns == ("[1]", "c.d")


@pytest.mark.parametrize("option", [name for name in SOURCE_OPTIONS if name != "store"])
def test_every_known_option_is_the_nearest_to_its_own_misspelling(option: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"did you mean '{option}'"):
        _source(**{option + "x": "1"})


ASSIGNMENTS = ["[0]", "orders", "{}", '{"orders":0}', '{"orders":["0"]}', '{"orders":[-1]}', "{"]


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_an_assignment_that_is_no_map_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"'assign' is .*expected JSON such as"):
        parse_source_options({"path": "/data", "assign": text})


@pytest.mark.parametrize("text", ["", " ", "[", "(?P<x", "(" * 5000, "a{9999999999}", "[a&&[^b]]"])
def test_a_pattern_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="'subscribePattern' is"):
        parse_source_options({"path": "/data", "subscribePattern": text})


def test_a_read_without_a_store_or_without_topics_says_what_is_missing() -> None:
    with pytest.raises(InvalidRequestError, match="store is missing"):
        parse_source_options({"subscribe": "orders"})
    with pytest.raises(InvalidRequestError, match=r"exactly one of .*none was given"):
        parse_source_options({"path": "/data"})


@pytest.mark.parametrize("parse", [parse_source_options, parse_sink_options])
def test_a_table_of_a_catalog_is_told_what_to_make_instead(
    parse: Callable[[dict[str, str]], object],
) -> None:
    with pytest.raises(InvalidRequestError, match=r"store is missing: .* CREATE TEMPORARY VIEW"):
        parse({})


@pytest.mark.parametrize("around", ["", " ", "\n"])
def test_a_pattern_is_found_anywhere_in_a_name_unless_anchored(around: str) -> None:
    names = ["orders", "reorders", "returns", "orders.eu"]
    given = {"path": "/d", "subscribePattern": f"{around}order{around}"}
    found = parse_source_options(given).subscription
    given["subscribePattern"] = f"{around}^order.*${around}"
    anchored = parse_source_options(given).subscription
    assert found.matches(names) == ["orders", "orders.eu", "reorders"]
    assert anchored.matches(names) == ["orders", "orders.eu"]


def test_an_assignment_covers_its_partitions_as_far_as_they_exist() -> None:
    text = '{"orders":[2,0,7],"returns":[0]}'
    subscription = parse_source_options({"path": "/d", "assign": text}).subscription
    assert subscription.matches(["returns", "orders", "other"]) == ["orders", "returns"]
    assert subscription.partitions_of("orders", 3) == [0, 2]
    assert subscription.partitions_of("orders", 8) == [0, 2, 7]


def test_a_relative_path_is_fixed_on_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_sink_options({"path": "data/shop"}).url == str(tmp_path / "data/shop")
    assert parse_sink_options({"path": "file:///data"}).url == "file:///data"


def test_a_sink_knows_its_own_options_and_what_spark_adds() -> None:
    options = parse_sink_options(
        {"path": "/d", "topic": " totals ", "checkpointlocation": "/c", "queryname": "q"}
    )
    assert (options.url, options.topic) == ("/d", "totals")
    with pytest.raises(InvalidRequestError, match="'subscribe' belongs to a read"):
        parse_sink_options({"path": "/d", "subscribe": "orders"})
    with pytest.raises(InvalidRequestError, match="did you mean 'topic'"):
        parse_sink_options({"path": "/d", "topics": "orders"})


def test_a_table_of_the_store_needs_no_topics() -> None:
    options = parse_source_options({"path": "/d", "table": "Segments"})
    assert (options.table, options.url) == ("segments", "/d")


INSTANTS = {
    "kafkas milliseconds": ("1700000000000", Instant(1_700_000_000_000_000)),
    "before 1970": ("-2", Instant(-2_000)),
    "as late as can be": (str(2**63 - 1), Instant(2**63 - 1)),
    "iso text in another zone": ("2024-05-06T07:08:09.5+02:00", Instant(1_714_972_089_500_000)),
    "iso text in UTC": ("2024-05-06T05:08:09Z", Instant(1_714_972_089_000_000)),
    "minutes ago": ("-10m", Instant(600_000_000, before_now=True)),
    "hours and minutes ago": ("-2h30m", Instant(9_000_000_000, before_now=True)),
}


@pytest.mark.parametrize(("text", "instant"), INSTANTS.values(), ids=INSTANTS.keys())
def test_instants_are_milliseconds_iso_text_or_before_now(text: str, instant: Instant) -> None:
    options = _source(startingTimestamp=text)
    assert options.starting == Bound(option="startingTimestamp", instant=instant)
    times = json.dumps({"orders": {"0": text, "*": 5}})
    by_partition = _source(endingOffsetsByTimestamp=times).ending
    assert by_partition == Bound(
        option="endingOffsetsByTimestamp",
        named={"orders": {0: instant}},
        rest={"orders": Instant(5_000)},
    )
    assert by_partition.by_time


def test_a_relative_instant_counts_from_the_moment_of_planning() -> None:
    assert Instant(600, before_now=True).at(1_000) == 400
    assert Instant(600).at(1_000) == 600


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_what_has_less_precedence_is_not_even_looked_at(side: str) -> None:
    given = {
        f"{side}Timestamp": "1000",
        f"{side}OffsetsByTimestamp": '{"orders":{"0":2000}}',
        f"{side}Offsets": "nonsense",
    }
    options = [f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    for option in options:
        bound = getattr(_source(**given), side)
        assert (bound.option, bound.by_time) == (option, True)
        del given[option]
    with pytest.raises(InvalidRequestError, match=f"'{side}Offsets' is 'nonsense'"):
        _source(**given)


NOT_FOR_STREAMS = {
    "offsets": ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads"),
    "a time": ({"endingTimestamp": "1"}, "'endingTimestamp' is for batch reads"),
    "times": (
        {"endingOffsetsByTimestamp": '{"orders":{"0":1}}'},
        "'endingOffsetsByTimestamp' is for batch reads",
    ),
}


@pytest.mark.parametrize(
    ("options", "message"), NOT_FOR_STREAMS.values(), ids=NOT_FOR_STREAMS.keys()
)
def test_a_stream_refuses_an_end(options: dict[str, str], message: str) -> None:
    parsed = _source(**options)  # a batch may have them
    with pytest.raises(InvalidRequestError, match=message):
        check_stream(parsed)


def test_a_batch_says_which_options_it_ignores(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_stream_options({"maxOffsetsPerTrigger": "1", "MAXTRIGGERDELAY": "1s", "group": "g"})
    assert "'maxOffsetsPerTrigger' is for streams" in caplog.text
    assert "'maxTriggerDelay' is for streams" in caplog.text
    assert "group" not in caplog.text


def test_every_option_of_a_read_stands_in_its_page() -> None:
    text = "".join(map(Path.read_text, (ROOT / "docs").glob("spark-*ing.md")))
    assert [name for name in SOURCE_OPTIONS if f"`{name}`" not in text] == []


def test_every_option_of_a_write_stands_in_its_page() -> None:
    text = (ROOT / "docs" / "kafka-parity.md").read_text()
    # `kmq.incremental` adds the other one.
    assert [name for name in SINK_OPTIONS if f"`{name}`" not in text] == ["groupOffsets"]
