"""Finds options of a Kafka job whose error doesn't say what replaces them."""

from __future__ import annotations

import re

import pytest

from kmq_spark.datasource.options.kafka_options import INSTEAD_OF_KAFKAS
from kmq_spark.datasource.options.known_options import SINK_OPTIONS, SOURCE_OPTIONS
from kmq_spark.datasource.options.sink_options import parse_sink_options
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_storage.errors import InvalidRequestError

#: The settings of Kafka's consumer and producer, without those for credentials.
OF_BOTH = """
    bootstrap.servers client.dns.lookup client.id connections.max.idle.ms enable.metrics.push
    interceptor.classes metadata.max.age.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    sasl.jaas.config sasl.kerberos.service.name sasl.mechanism security.protocol
    send.buffer.bytes socket.connection.setup.timeout.ms ssl.keystore.location
    ssl.truststore.password
"""
OF_THE_CONSUMER = """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack
    default.api.timeout.ms enable.auto.commit exclude.internal.topics fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    heartbeat.interval.ms isolation.level key.deserializer max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
    value.deserializer
"""
OF_THE_PRODUCER = """
    acks batch.size buffer.memory compression.type compression.zstd.level delivery.timeout.ms
    enable.idempotence key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
    partitioner.class partitioner.ignore.keys retries transaction.timeout.ms transactional.id
    value.serializer
"""


def _read_error(name: str) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        parse_source_options({"path": "/s", "subscribe": "orders", name: "1"})
    return str(refused.value)


def _write_error(name: str) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        parse_sink_options({"path": "/s", "topic": "orders", name: "1"})
    return str(refused.value)


def test_each_setting_of_kafkas_clients_has_an_answer_of_its_own():
    reads = {name: _read_error(f"kafka.{name}") for name in (OF_BOTH + OF_THE_CONSUMER).split()}
    writes = {name: _write_error(f"kafka.{name}") for name in (OF_BOTH + OF_THE_PRODUCER).split()}
    for name, error in [*reads.items(), *writes.items()]:
        assert f"'kafka.{name}' is unknown; " in error
        assert "no Kafka client" not in error


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("max.request.size", "max_record_bytes"),
        ("compression.type", "compression for the topic"),
        ("linger.ms", "stored in bulk: remove it"),
        ("retries", "no broker to wait for"),
        ("enable.idempotence", "batch writes are with 'txnAppId'"),
    ],
)
def test_the_error_of_a_write_says_what_replaces_the_producers_setting(name: str, instead: str):
    assert instead in _write_error(f"kafka.{name}")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("fetch.max.bytes", "'maxBytesPerPartition', or 'maxBytesPerTrigger' in a stream"),
        ("fetch.min.bytes", "'minOffsetsPerTrigger'"),
        ("metadata.max.age.ms", "looked up anew for each batch"),
        ("group.id", "use option 'group'"),
        ("group.instance.id", "nothing times out"),
        ("max.poll.records", "'maxOffsetsPerTrigger'"),
        ("max.poll.interval.ms", "nothing times out"),
        ("security.protocol", "options 'storage.*'"),
    ],
)
def test_the_error_of_a_read_says_what_replaces_the_consumers_setting(name: str, instead: str):
    assert instead in _read_error(f"kafka.{name}")


def test_every_option_that_an_answer_names_exists():
    named = re.findall(r"'(\w+)'", " ".join(INSTEAD_OF_KAFKAS.values()))
    assert {*named} - {"partition"} <= {*SOURCE_OPTIONS, *SINK_OPTIONS}
