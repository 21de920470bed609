"""A stand-in for Spark's micro-batch engine: the calls of 4.2 in their order, without a JVM.

It keeps a checkpoint as Spark does (the end of each batch before it runs, a mark after it), can
die at any step, and hands everything over as JSON and pickles.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.options.source_options import SourceOptions, parse_source_options
from kmq_spark.datasource.planning.view import View, columns_of_read, plain_view
from kmq_spark.datasource.stream_reader import KmqStreamReader
from kmq_storage.environment import SYSTEM, Environment
from tests.spark.shop import Place, Shop


def plain_columns(*, headers: bool = False) -> pa.Schema:
    """The columns of a read of untyped topics, as its record batches have them."""
    options = {"path": "/", "subscribe": "orders", "includeHeaders": str(headers)}
    return _view(parse_source_options(options)).arrow


def _view(options: SourceOptions) -> View:
    return plain_view(columns_of_read([], options), options)


def batch_reader(options: Mapping[str, str]) -> KmqBatchReader:
    """The reader of a batch query over untyped topics."""
    parsed = parse_source_options(options)
    return KmqBatchReader(parsed, _view(parsed))


def stream_reader(options: Mapping[str, str], environment: Environment = SYSTEM) -> KmqStreamReader:
    """The reader of a streaming query over untyped topics."""
    parsed = parse_source_options(options)
    return KmqStreamReader(parsed, _view(parsed), environment)


class Crash(Enum):
    """Where the driver dies while it runs a batch."""

    BEFORE_WAL = auto()
    AFTER_WAL = auto()
    AFTER_READ = auto()
    AFTER_SINK = auto()


@dataclass
class Checkpoint:
    """What survives: the ends of planned batches, how many are marked as finished."""

    ends: list[str] = field(default_factory=list)
    finished: int = 0


@dataclass
class Sink:
    """An idempotent sink: a batch that comes again replaces what it wrote before."""

    batches: dict[int, list[Place]] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """Everything written, batch by batch."""
        return [place for number in sorted(self.batches) for place in self.batches[number]]


class Query:
    """One run of a streaming query on a checkpoint, until it is dropped."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        sink: Sink,
        *,
        available_now: bool = False,
        environment: Environment = SYSTEM,
    ) -> None:
        self.reader = stream_reader(options, environment)
        self._headers = "includeHeaders" in options
        self._checkpoint = checkpoint
        self._sink = sink
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = self.reader.getDefaultReadLimit()
        self._replayed = len(checkpoint.ends) == checkpoint.finished

    def trigger(self, crash: Crash | None = None) -> bool:
        """Run the next batch, first an unfinished one of an earlier run; False: nothing to do."""
        if not self._replayed:
            self._replayed = True
            self._run(crash)
            return True
        start = self._start()
        end = _through_json(self.reader.latestOffset(_loaded(start), self._limit))
        self.reader.reportLatestOffset()
        if end == start and self._checkpoint.ends:  # the first batch is run in any case
            return False
        if crash is Crash.BEFORE_WAL:
            return True
        self._checkpoint.ends.append(end)
        self._run(crash)
        return True

    def die(self) -> None:
        """End the reader's process: the kernel frees its place in the group."""
        self.reader.stop()

    def all_available(self, limit: ReadLimit | None = None) -> None:
        """Trigger until nothing is new."""
        self._limit = limit or self._limit
        while self.trigger():
            pass

    def _start(self) -> str:
        finished = self._checkpoint.finished
        if finished:
            return self._checkpoint.ends[finished - 1]
        return _through_json(self.reader.initialOffset())

    def _run(self, crash: Crash | None) -> None:
        number = self._checkpoint.finished
        if crash is Crash.AFTER_WAL:
            return
        end = self._checkpoint.ends[number]
        tasks = self.reader.partitions(_loaded(self._start()), _loaded(end))
        rows: list[Place] = []
        for task in tasks:
            for batch in _sent(self.reader).read(_sent(task)):
                assert batch.schema.equals(plain_columns(headers=self._headers))
                columns = batch.select(["topic", "partition", "offset"]).to_pydict().values()
                rows += zip(*columns, strict=True)
        if crash is Crash.AFTER_READ:
            return
        self._sink.batches[number] = rows
        if crash is Crash.AFTER_SINK:
            return
        if number:
            self.reader.commit(json.loads(self._checkpoint.ends[number - 1]))
        self._checkpoint.finished += 1


ALL = ReadAllAvailable()


def _sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _through_json(offset: Mapping[str, Any]) -> str:
    return json.dumps(offset)


def _loaded(offset: str) -> Any:
    return json.loads(offset)


class Stream:
    """A query that is started again and again on one checkpoint."""

    def __init__(self, shop: Shop, **options: str) -> None:
        self.shop = shop
        self.options = {"path": shop.url, "subscribe": "orders", **options}
        self.checkpoint = Checkpoint()
        self.sink = Sink()
        self.environment = SYSTEM
        self._running: Query | None = None

    def start(self, *, available_now: bool = False, **changed: str) -> Query:
        """A new run, perhaps with other options; the one before is dead by then."""
        self.stop()
        self.options |= changed
        self._running = Query(
            self.options,
            self.checkpoint,
            self.sink,
            available_now=available_now,
            environment=self.environment,
        )
        return self._running

    def stop(self) -> None:
        """End the run that was started last."""
        if self._running is not None:
            self._running.die()

    @property
    def lost(self) -> int:
        """The lost records that the checkpoint counts."""
        number: int = _loaded(self.checkpoint.ends[-1])["#kmq"].get("lost", 0)
        return number

    @property
    def sizes(self) -> list[int]:
        """The records of each batch."""
        return [len(self.sink.batches[number]) for number in sorted(self.sink.batches)]


def careless(shop: Shop, **options: str) -> Stream:
    """A query from the beginning on that goes on behind what it lost."""
    return Stream(shop, **{"startingOffsets": "earliest", "failOnDataLoss": "false"} | options)


def careless_of_any(shop: Shop) -> tuple[Stream, Query]:
    """The same of all topics that begin with a t, and its first run, which has looked once."""
    stream = careless(shop)
    del stream.options["subscribe"]
    stream.options["subscribePattern"] = "^t"
    query = stream.start()
    query.trigger()  # what is deleted before its first look is none of its losses
    return stream, query
