"""What others do with a topic of version 2: members of its groups, records of other programs."""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.v2 import Kmq, KmqMessage, KmqProducer
from tests.unit.v2.arrays import TOPIC, said


def test_a_group_with_live_members_is_not_polled(
    store: kmq.Store, array: Kmq, producer: KmqProducer
):
    for message in said(0, 1, 2):
        producer.send(TOPIC, message)
    assert array.poll("c") == KmqMessage(None, 0)
    with store.consumer("c", topics=[TOPIC]) as member:
        (one,) = member.consume(1, timeout=5.0)
        with pytest.raises(kmq.IllegalStateError, match="group c has a live member"):
            array.poll("c")
        member.commit()
    assert (one.offset, array.poll("c")) == (1, KmqMessage(None, 2))
    refused = pytest.raises(kmq.IllegalStateError, match="has a live member")
    for group in ("c", "new"):  # nor with nothing to be had
        with store.consumer(group, topics=[TOPIC]), refused:
            array.poll(group)


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"{", {"kmq.v2.body": b"json"}),
        (None, {"kmq.v2.body": b"json"}),
        (b"\xff", {"kmq.v2.body": b"text"}),
        (b"body", {"kmq.v2.headers": b"\xff"}),
    ],
)
def test_a_record_that_only_looks_like_a_message_is_an_error_that_names_it(
    store: kmq.Store, array: Kmq, value: bytes | None, headers: dict[str, bytes]
):
    with store.producer() as sender:
        sender.send(TOPIC, value, headers=headers)
        sender.send(TOPIC, b"next")
    with pytest.raises(kmq.InvalidRequestError, match=f"offset 0 of {TOPIC}-0") as raised:
        array.poll("c")
    assert raised.value.context["offset"] == 0
    assert array.poll("c") == KmqMessage(None, b"next")


class _Text(str):
    """Text that knows more."""

    __slots__ = ()


@pytest.mark.parametrize("body", [_Text("a"), [_Text("a")], {"a": [_Text("c")]}, {_Text("a"): 1}])
def test_a_body_of_a_type_that_would_not_come_back_is_refused(producer: KmqProducer, body: Any):
    with pytest.raises(kmq.InvalidRequestError, match="it would come back as something else"):
        producer.send(TOPIC, KmqMessage(None, body))
