"""Messages: what was sent comes back with its types, and what is wrong is refused."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.stored import decoded, encoded
from tests.unit.openmessaging.received import all_of, attached

VALUES = [5, 0, -(2**63), 2**63 - 1, 1.5, -0.0, 1e300, math.inf, -math.inf, 5.0]
VALUES += ["x", "5", "-7.5", "1e5", "nan", "inf", '"quoted"', "007", "ünï", "a\nb", " 5"]


def test_body_headers_and_properties_come_back_with_their_types(
    settings: oms.KeyValue, producer: oms.Producer
):
    message = producer.create_bytes_message_to_topic("t", b"\x00body")
    for number, value in enumerate(VALUES):
        message.put_headers(f"h{number}", value).put_properties(f"p{number}", value)
    producer.send(message)
    producer.send(producer.create_bytes_message_to_topic("t", b""))
    first, second = all_of(attached(settings, topics=["t"]))
    assert first.get_body() == b"\x00body"
    for number, value in enumerate(VALUES):
        found = first.headers().values[f"h{number}"], first.properties().values[f"p{number}"]
        assert [(type(each), repr(each)) for each in found] == [(type(value), repr(value))] * 2
    assert (second.get_body(), second.properties().key_set()) == (b"", set())


@given(st.text() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False))
def test_a_header_is_readable_and_keeps_its_type(value: str | float):
    back = decoded(encoded(value)) if value != "" else value
    assert (type(back), back) == (type(value), value)


@given(st.binary())
def test_a_header_of_another_program_is_a_value_whatever_its_bytes(data: bytes):
    assert type(decoded(data)) in (str, int, float)


def test_what_is_not_there_is_zero_or_none():
    empty = oms.KeyValue()
    assert (empty.get_int("k"), empty.get_long("k"), empty.get_double("k")) == (0, 0, 0.0)
    assert (empty.get_string("k"), empty.contains_key("k"), empty.key_set()) == (None, False, set())


def test_values_may_stand_in_any_kind_of_dict():
    """Also where C has the classes, which knows of one kind only."""
    given = OrderedDict[str, Any](k=1)
    values = oms.KeyValue(given).put("other", 2.5)
    assert (values.get_int("k"), given["other"], values.key_set()) == (1, 2.5, {"k", "other"})
    values.values = defaultdict(int, n=3)
    assert (values.get_int("n"), values.contains_key("k")) == (3, False)
    message = BytesMessage(b"", OrderedDict(h=1), OrderedDict(p=2))
    assert message.put_headers("more", 4).headers().key_set() == {"h", "more"}
    assert message.put_properties("more", 4).properties().key_set() == {"p", "more"}


def test_entries_are_replaced_and_never_taken_out():
    values = oms.KeyValue().put("k", 1).put("other", 2.5).put("k", "one")
    assert (values.get_string("k"), values.contains_key("k")) == ("one", True)
    assert values.key_set() == {"k", "other"}
    values.key_set().clear()
    assert values.key_set() == {"k", "other"}


def test_a_value_is_given_in_the_type_that_is_asked_for():
    values = oms.KeyValue().put("i", 5).put("d", 2.5).put("s", "7")
    assert (values.get_string("i"), values.get_double("i"), values.get_long("s")) == ("5", 5.0, 7)
    with pytest.raises(kmq.InvalidRequestError, match="s is 'x', which is no int"):
        values.put("s", "x").get_int("s")


@pytest.mark.parametrize("value", [None, "", True, b"x", 2**63, [], "\ud800"])
def test_a_value_of_another_kind_is_refused(value: object):
    with pytest.raises(kmq.InvalidRequestError, match="the value of k"):
        oms.KeyValue().put("k", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, "", 5, "\ud800"])
def test_a_key_that_is_no_text_is_refused(key: object):
    with pytest.raises(kmq.InvalidRequestError, match="a key must be"):
        oms.KeyValue().put(key, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [oms.Producer, oms.PullConsumer, oms.PushConsumer])
def test_settings_without_a_path_are_refused(kind: type):
    with pytest.raises(kmq.InvalidRequestError, match="STORE_PATH is missing"):
        kind(oms.KeyValue())


@pytest.mark.parametrize("given", [{"STORE_PATH": "store"}, "store", None])
def test_settings_that_are_no_key_value_are_named(given: object):
    with pytest.raises(kmq.InvalidRequestError, match=f"of type {type(given).__name__}: hand in"):
        oms.Producer(given)  # type: ignore[arg-type]


def test_a_message_is_for_one_topic_or_one_queue(producer: oms.Producer):
    both = producer.create_bytes_message_to_topic("t", b"x").put_headers("Queue", "q")
    neither = producer.create_bytes_message_to_queue("q", b"x")
    del neither.headers().values["Queue"]
    for wrong in (both, neither, None, b"x"):
        with pytest.raises(kmq.InvalidRequestError):
            producer.send(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, "", "a/b", "queue:q", "t:1"])
def test_a_name_that_no_topic_or_queue_can_have_is_refused(producer: oms.Producer, name: str):
    with pytest.raises(kmq.InvalidRequestError):
        producer.send(producer.create_bytes_message_to_topic(name, b"x"))
    with pytest.raises(kmq.InvalidRequestError):
        producer.send(producer.create_bytes_message_to_queue(name, b"x"))


@pytest.mark.parametrize("body", [None, "text", 5])
def test_a_body_is_bytes(producer: oms.Producer, body: object):
    with pytest.raises(kmq.InvalidRequestError, match="a body must be bytes"):
        producer.create_bytes_message_to_topic("t", body)  # type: ignore[arg-type]


def test_a_message_that_is_too_large_is_refused_alone(
    settings: oms.KeyValue, producer: oms.Producer
):
    producer.send(producer.create_bytes_message_to_topic("t", b"before"))
    with pytest.raises(kmq.InvalidRequestError, match="too large"):
        producer.send(producer.create_bytes_message_to_topic("t", bytes(2**20 + 1)))
    wide = producer.create_bytes_message_to_topic("t", b"").put_headers("h", "ü" * 2**19)
    with pytest.raises(kmq.InvalidRequestError, match="too large"):
        producer.send(wide)
    producer.send(producer.create_bytes_message_to_topic("t", bytes(2**18)))
    assert len(all_of(attached(settings, topics=["t"]))) == 2
