"""What a write needs to know and what its tasks hand back: values that travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options import SinkOptions
from kmq_storage.format.entries import RecordsEntry, TopicEntry
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state import StoreState


@dataclass(frozen=True)
class Sink:
    """A store to write to as of some LSN, the topic chosen, and the topics a row may name."""

    url: str
    lsn: int
    topic: str | None
    definitions: Mapping[str, TopicEntry]

    def topics(self) -> StoreState:
        """A state that knows these topics and nothing else: executors replay no log for it."""
        state = StoreState()
        state.apply(0, 0, list(self.definitions.values()))
        return state


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written: staged batches to refer to, and batches small enough to send."""

    staged: tuple[RecordsEntry, ...]
    small: tuple[PartitionRecords, ...]
    #: The streaming query; None for a batch write.
    query: str | None = None


def open_sink(options: SinkOptions) -> Sink:
    """The sink for these options; NotFoundError when store or topic is not there."""
    state = open_log(options.url, read_only=False).refresh()
    names = state.topics if options.topic is None else [options.topic]
    found = [state.topic(name) for name in names]
    definitions = {
        topic.name: TopicEntry(topic.id, topic.name, topic.partitions, topic.settings.to_json())
        for topic in found
    }
    return Sink(options.url, state.lsn, options.topic, definitions)
