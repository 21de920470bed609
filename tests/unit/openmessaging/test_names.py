"""The names: each one of OpenMessaging's, in both spellings."""

from __future__ import annotations

import pytest

from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging.key_value import in_camel_case

#: What users may rely on.
NAMES = {
    oms.KeyValue: "contains_key get_double get_int get_long get_string key_set put",
    oms.BytesMessage: "get_body headers properties put_headers put_properties",
    oms.Producer: "create_batch_to_partition create_bytes_message_to_queue flush send shutdown "
    "create_bytes_message_to_topic send_async send_oneway startup",
    oms.PullConsumer: "ack attach_queue poll shutdown startup",
    oms.PushConsumer: "attach_queue is_suspended resume shutdown startup suspend",
    oms.BatchToPartition: "close commit rollback send",
    oms.PartitionConsumer: "partition_iterator shutdown startup",
    oms.PartitionIterator: "current_offset first_offset has_next has_previous last_offset next "
    "persist previous seek_by_offset seek_by_time",
    oms.ReceivedMessageContext: "ack properties",
    oms.SendResult: "message_id",
}


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_every_name_is_there_in_both_spellings(kind: type):
    for name in NAMES[kind].split():
        assert getattr(kind, in_camel_case(name)) is getattr(kind, name)


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_no_public_method_has_one_spelling_only(kind: type):
    names = {n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))}
    assert {name for name in names if in_camel_case(name) not in names} == set()


def test_there_are_seventeen_standard_headers():
    names = [value for name, value in vars(oms.MessageHeader).items() if name.isupper()]
    assert sorted(names) == [
        *("BornHost", "BornTimestamp", "MessageId", "Priority", "Queue", "Reliability"),
        *("ScheduleExpression", "SearchKey", "ShardingKey", "ShardingPartition", "StartTime"),
        *("StopTime", "StoreHost", "StoreTimestamp", "Timeout", "Topic", "TraceId"),
    ]
