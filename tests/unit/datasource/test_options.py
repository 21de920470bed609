"""Finds options that are misread, silently ignored, or refused without saying what to do."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kmq_spark.datasource.offsets import Bound
from kmq_spark.datasource.options import (
    SOURCE_OPTIONS,
    SourceOptions,
    parse_sink_options,
    parse_source_options,
)
from kmq_storage.errors import InvalidRequestError


def _source(**options: str) -> SourceOptions:
    return parse_source_options({"path": "/data/shop", "subscribe": "orders", **options})


def test_what_is_not_given_has_kafkas_defaults() -> None:
    options = _source()
    assert options.url == "/data/shop"
    assert options.subscription.topics == ("orders",)
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.starting is options.ending is options.group is None
    assert options.min_partitions is options.max_offsets_per_trigger is None


def test_every_option_is_understood_in_any_letter_case() -> None:
    given = {
        "store": "/data/shop",
        "subscribe": " b, a ,a,",
        "startingOffsets": "Earliest",
        "endingOffsets": '{"a":{"0":-1}}',
        "maxOffsetsPerTrigger": "9223372036854775807",
        "minPartitions": "4",
        "includeHeaders": "TRUE",
        "failOnDataLoss": "False",
        "group": "billing",
    }
    parsed = [
        parse_source_options({spell(name): value for name, value in given.items()})
        for spell in (str, str.upper, str.lower)
    ]
    assert parsed[0] == parsed[1] == parsed[2]
    assert parsed[0].subscription.topics == ("a", "b")
    assert parsed[0].starting == Bound(word="earliest")
    assert parsed[0].ending == Bound(offsets={"a": {0: -1}})
    assert parsed[0].max_offsets_per_trigger == 2**63 - 1
    assert (parsed[0].min_partitions, parsed[0].group) == (4, "billing")
    assert parsed[0].include_headers
    assert not parsed[0].fail_on_data_loss
    assert pickle.loads(pickle.dumps(parsed[0])) == parsed[0]


REFUSED = {
    "misspelt": ({"minPartition": "4"}, "did you mean 'minPartitions'"),
    "of a later version of Kafka": (
        {"maxRecordsPerPartition": "4"},
        "option 'maxrecordsperpartition' is unknown",
    ),
    "without any likeness": ({"zzz": "1"}, "known are path, store, subscribe"),
    "brokers": ({"kafka.bootstrap.servers": "localhost:9092"}, "load\\(path\\)"),
    "group id": ({"kafka.group.id": "g"}, "use option 'group'"),
    "isolation": ({"kafka.isolation.level": "read_committed"}, "committed records only"),
    "any client setting": ({"kafka.fetch.min.bytes": "1"}, "no Kafka client"),
    "of the sink": ({"topic": "orders"}, "'topic' belongs to a write"),
    "minPartitions 0": ({"minPartitions": "0"}, "'minPartitions' is '0': expected a whole number"),
    "minPartitions -1": ({"minPartitions": "-1"}, "is '-1': expected a whole number"),
    "minPartitions 1.0": ({"minPartitions": "1.0"}, "is '1.0': expected a whole number"),
    "minPartitions a": ({"minPartitions": "a"}, "is 'a': expected a whole number"),
    "too large a limit": ({"maxOffsetsPerTrigger": str(2**63)}, "expected a whole number"),
    "endless digits": ({"maxOffsetsPerTrigger": "9" * 5000}, "expected a whole number"),
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
    "end at earliest": ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest'"),
    "end at -2": ({"endingOffsets": '{"orders":{"0":-2}}'}, "no earliest for orders\\[0\\]"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_option_is_refused_with_its_name_its_value_and_what_to_do(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        _source(**options)


@pytest.mark.parametrize("option", [name for name in SOURCE_OPTIONS if name != "store"])
def test_every_known_option_is_the_nearest_to_its_own_misspelling(option: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"did you mean '{option}'"):
        _source(**{option + "x": "1"})


ASSIGNMENTS = ["[0]", "orders", "{}", '{"orders":0}', '{"orders":["0"]}', '{"orders":[-1]}', "{"]


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_an_assignment_that_is_no_map_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"'assign' is .*expected JSON such as"):
        parse_source_options({"path": "/data", "assign": text})


@pytest.mark.parametrize("text", ["", " ", "[", "(?P<x"])
def test_a_pattern_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="'subscribePattern' is"):
        parse_source_options({"path": "/data", "subscribePattern": text})


def test_a_read_without_a_store_or_without_topics_says_what_is_missing() -> None:
    with pytest.raises(InvalidRequestError, match="store is missing"):
        parse_source_options({"subscribe": "orders"})
    with pytest.raises(InvalidRequestError, match=r"exactly one of .*none was given"):
        parse_source_options({"path": "/data"})


def test_a_pattern_is_found_anywhere_in_a_name_unless_anchored() -> None:
    names = ["orders", "reorders", "returns", "orders.eu"]
    found = parse_source_options({"path": "/d", "subscribePattern": "order"}).subscription
    anchored = parse_source_options({"path": "/d", "subscribePattern": "^order.*$"}).subscription
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
        {"path": "/d", "topic": "totals", "checkpointlocation": "/c", "queryname": "q"}
    )
    assert (options.url, options.topic) == ("/d", "totals")
    with pytest.raises(InvalidRequestError, match="'subscribe' belongs to a read"):
        parse_sink_options({"path": "/d", "subscribe": "orders"})
    with pytest.raises(InvalidRequestError, match="did you mean 'topic'"):
        parse_sink_options({"path": "/d", "topics": "orders"})
