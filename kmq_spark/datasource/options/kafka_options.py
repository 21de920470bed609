"""What replaces the options of Spark's Kafka source and sink, or why nothing has to."""

from __future__ import annotations

from types import MappingProxyType

_NO_BROKER = "kmq polls no broker: remove it"

#: By the beginnings of names, with spaces between.
_KAFKA_CLIENT = {
    "": "kmq has no Kafka client to pass it to: remove it",
    # of both clients
    "bootstrap.servers": "kmq has no brokers: give the store as load(path) or option 'path'",
    "security. sasl. ssl.": (
        "access to a store is that of its storage (file rights; for a bucket, options 'storage.*')"
    ),
    "client.id": "no broker is told who asks: name a stream by queryName, or remove it",
    "client.rack": "every executor reads the store itself: remove it",
    "metadata.": "topics and partitions are looked up anew for each batch: remove it",
    "interceptor.": "change the rows in Spark: remove it",
    "metric. metrics. enable.metrics. auto.include.jmx.": (
        "kmq_spark.listener reports lag and throughput: remove it"
    ),
    "request. default.api. retry. retries reconnect. connections. socket. send.buffer. "
    "receive.buffer. client.dns. bootstrap.resolve. delivery. max.block. max.in.flight.": (
        "there is no broker to wait for: remove it (options 'storage.*' set a bucket's client)"
    ),
    # of the consumer
    "group.id": "use option 'group'",
    "session. heartbeat. group. partition.assignment. max.poll.interval.": (
        "Spark gives the partitions to its tasks, and nothing times out: remove it"
    ),
    "auto.offset.reset": "use option 'startingOffsets'",
    "enable.auto.commit auto.commit.": "use option 'group': finished batches are committed to it",
    "isolation.level": "kmq readers see committed records only: remove it",
    "max.poll.records": "use option 'maxOffsetsPerTrigger' or 'maxRecordsPerPartition'",
    "max.partition.fetch.bytes": "use option 'maxBytesPerPartition'",
    "fetch.max.bytes": "use option 'maxBytesPerPartition', or 'maxBytesPerTrigger' in a stream",
    "fetch.min. fetch.max.wait.": (
        "remove it; a stream waits by 'minOffsetsPerTrigger' and 'maxTriggerDelay'"
    ),
    "key.deserializer value.deserializer": (
        "key and value are binary columns: cast or decode them in Spark"
    ),
    "check.crcs": "every record is under a checksum that is always checked: remove it",
    "exclude.internal.": "a store has no internal topics: remove it",
    "allow.auto.create.": "topics are made by create_topic: remove it",
    # of the producer
    "key.serializer": "a key column is text or binary: cast or encode it in Spark",
    "value.serializer": "a value column is text or binary: cast or encode it in Spark",
    "partitioner.": "use a 'partition' column",
    "acks": "a write is on disk, or in the bucket, when it returns: remove it",
    "enable.idempotence": (
        "writes of streams are exactly-once: remove it; batch writes are with 'txnAppId' and "
        "'txnVersion'"
    ),
    "transaction": "a batch is one commit, all or nothing: remove it",
    "compression.": "set compression for the topic (alter_topic)",
    "max.request.size": "set max_record_bytes for the topic (alter_topic)",
    "batch.size linger.ms buffer.memory": "the rows of a task are stored in bulk: remove it",
}

#: By the beginning of an option's name in lower case.
INSTEAD_OF_KAFKAS = MappingProxyType(
    {
        f"kafka.{name}": instead
        for names, instead in _KAFKA_CLIENT.items()
        for name in names.split() or [""]
    }
    | {
        "kafkaconsumer.": _NO_BROKER,
        "fetchoffset.": _NO_BROKER,
        "groupidprefix": "groups are never generated: name one with option 'group', or remove it",
    }
)
