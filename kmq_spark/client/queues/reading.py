"""From runs that a receiver holds to their records: deliveries, or Arrow with a column of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from kmq_spark.client.queues.delivery import Delivery, Hold, check_own
from kmq_spark.client.queues.near_runs import deliveries_in, held_parts, near, spanned
from kmq_spark.client.queues.typed_letters import with_row
from kmq_spark.client.records.record_columns import public_schema
from kmq_spark.client.records.record_values import values_of
from kmq_spark.client.records.topic_tables import table_of
from kmq_spark.errors import CorruptionError, InvalidRequestError
from kmq_storage.format.layout import UNTYPED
from kmq_storage.format.manifest import Key
from kmq_storage.format.plain_columns import no_rows
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.few_records import FewRecords, Part, few_records
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.names import queue_of_log
from kmq_storage.objects.fork import generation
from kmq_storage.queues.handing import id_in_store, merged

if TYPE_CHECKING:
    import numpy.typing as npt

#: Records, and the runs that they are in.
Held: TypeAlias = tuple[Sequence[Run], Slice]
_BATCH_ROWS = 65_536
#: The type of the column `_delivery`.
_TOKEN = np.dtype(
    [
        ("queue", "<u8", 2),
        ("topic", "<u8", 2),
        ("offset", "<i8"),
        ("partition", "<u4"),
        ("delivery", "<u8"),
        ("generation", "<u4"),
    ]
)
TOKEN_TYPE = pa.binary(_TOKEN.itemsize)
_NO_TOKENS: npt.NDArray[Any] = np.zeros(0, _TOKEN)


def parts_of(log: CommitLog, reader: ChunkReader, run: Run) -> Iterator[Part]:
    """Yield the records of a run, slice by slice; those of a queue's own log have no topic.

    What was deleted, trimmed, or cut out by a repair meanwhile is left out.
    """
    topic = log.state.topic_by_id(run.topic_id)
    if topic is None:
        return
    end = run.end
    start = min(max(run.first, topic.partition(run.partition).first), end)
    own = queue_of_log(topic.name) is not None
    for span in topic.index(run.partition).outside_gaps(start, end):
        few = few_records(reader, topic, run.partition, *span)
        parts: Iterable[Part] = (
            [few]
            if few is not None
            else scan(log, reader, topic, run.partition, span, batch_rows=_BATCH_ROWS)
        )
        for part in parts:
            yield replace(part, topic=None) if own else part


def deliveries_of(
    log: CommitLog, reader: ChunkReader, runs: Sequence[Run], queue: str, hold: Hold
) -> list[Delivery]:
    """Return the records of runs as deliveries, in that order."""
    found: list[Delivery] = []
    kind = hold.queue._kind
    for of, part in _held(log, reader, runs):
        rest = (repeat(queue), deliveries_in(of, part), repeat(of[0][:2]), repeat(hold))
        deliveries = map(kind, zip(*values_of(part), *rest, strict=False))
        letters = part.topic is None and not isinstance(part, FewRecords)  # those are plain
        found += map(with_row, deliveries) if letters else deliveries
    return found


def places_of(runs: Iterable[Run]) -> set[tuple[Key, int]]:
    """The place of each record of some runs."""
    return {(run.key, offset) for run in runs for offset in range(run.first, run.end)}


def missing_of(runs: Sequence[Run], there: set[tuple[Key, int]]) -> list[Run]:
    """Return the records of runs that are not there: compacted away, or lost."""
    if len(there) == sum(run.rows for run in runs):
        return []
    gone = [
        run._replace(first=offset, rows=1)
        for run in runs
        for offset in range(run.first, run.end)
        if (run.key, offset) not in there
    ]
    return merged(gone)


def of_one_schema(log: CommitLog, runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Split runs: those of topics with the same columns as the first, and the others."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        topic = log.state.topic_by_id(run.topic_id)
        found.setdefault(topic.settings.schemas if topic else (), []).append(run)
    first, *others = found.values()
    return first, [run for some in others for run in some]


def slices_of(log: CommitLog, reader: ChunkReader, runs: Sequence[Run]) -> list[Held]:
    """The records of runs as Arrow, each slice with the runs that its records are in."""
    found = ((of, part.as_slice()) for of, part in _held(log, reader, runs))
    return [each for each in found if each[1].rows]  # compaction may have left none


def _held(
    log: CommitLog, reader: ChunkReader, runs: Sequence[Run]
) -> Iterator[tuple[Sequence[Run], Part]]:
    """The records of runs, in that order, with the runs that they are in."""
    for some in near(runs):
        try:
            parts = list(parts_of(log, reader, spanned(some)))
        except CorruptionError:
            if len(some) == 1:
                raise
            for run in some:  # a slice may lie between the runs
                yield from _held(log, reader, [run])
        else:
            yield from ((some, each) for part in parts for each in held_parts(some, part))


def table_of_slices(log: CommitLog, queue_id: bytes, slices: Sequence[Held]) -> pa.Table:
    """Return one table with the column `_delivery`, which `ack` takes."""
    table = table_of([part for _, part in slices]) if slices else _no_rows(log, queue_id)
    here = id_in_store(log, queue_id)
    tokens = [_tokens(here, runs, part) for runs, part in slices]
    column = pa.FixedSizeBinaryArray.from_buffers(
        TOKEN_TYPE, len(table), [None, pa.py_buffer(np.concatenate([*tokens, _NO_TOKENS]))]
    )
    return table.append_column(pa.field("_delivery", TOKEN_TYPE), column)


def _no_rows(log: CommitLog, queue_id: bytes) -> pa.Table:
    """No records, with the columns of the first topic that the queue is bound to."""
    queue = log.state.queues.by_id(queue_id)
    topics = map(log.state.topic_by_id, queue.bindings if queue else ())
    first = next((topic for topic in topics if topic is not None), None)
    schema = public_schema(UNTYPED if first is None else first.layout())
    return pa.Table.from_batches([no_rows(schema)])


def _tokens(here: bytes, runs: Sequence[Run], part: Slice) -> npt.NDArray[Any]:
    tokens: npt.NDArray[Any] = np.zeros(part.rows, _TOKEN)
    tokens["queue"] = np.frombuffer(here, "<u8")
    tokens["topic"] = np.frombuffer(runs[0].topic_id, "<u8")
    tokens["offset"] = part.offsets()
    tokens["partition"] = runs[0].partition
    tokens["delivery"] = deliveries_in(runs, part)
    tokens["generation"] = generation()
    return tokens


def answered_by(data: pa.Table | pa.RecordBatch) -> tuple[bytes, list[Run]]:
    """Return the `id_in_store` of a table's queue, and the runs that an answer names."""
    tokens = _tokens_of(data)
    here = tokens["queue"][:1].tobytes()
    return here, _runs_of_tokens(here, tokens)


def runs_of_table(here: bytes, data: pa.Table | pa.RecordBatch) -> list[Run]:
    """Return the runs of a table's rows for an answer; InvalidRequestError for another queue's."""
    return _runs_of_tokens(here, _tokens_of(data))


def _runs_of_tokens(here: bytes, tokens: npt.NDArray[Any]) -> list[Run]:
    if not len(tokens):
        return []
    if (tokens["queue"] != np.frombuffer(here, "<u8")).any():
        raise InvalidRequestError(
            "the table has deliveries of another queue or store", field="_delivery"
        )
    check_own(int(tokens["generation"].min()))
    breaks = _breaks(tokens)
    if len(breaks) > len(tokens) // 8:
        fields = [tokens["offset"], tokens["delivery"], tokens["partition"]]
        order = np.lexsort([*fields, tokens["topic"][:, 1], tokens["topic"][:, 0]])
        tokens = tokens[order]
        breaks = _breaks(tokens)
    firsts = [0, *breaks.tolist(), len(tokens)]
    return merged([_run(tokens[low], high - low) for low, high in pairwise(firsts)])


def _tokens_of(data: pa.Table | pa.RecordBatch) -> npt.NDArray[Any]:
    position = data.schema.get_field_index("_delivery")
    if position < 0:
        raise InvalidRequestError(
            "the table has no column '_delivery': hand in rows that receive_arrow gave",
            field="_delivery",
        )
    column = data.column(position)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        chunks = [chunk.cast(TOKEN_TYPE) for chunk in chunks]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"column '_delivery' is not what receive_arrow gave: {error}", field="_delivery"
        ) from error
    if column.null_count:
        raise InvalidRequestError("column '_delivery' has nulls", field="_delivery")
    arrays = [
        np.frombuffer(chunk.buffers()[1], _TOKEN)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in chunks
        if len(chunk)
    ]
    return np.concatenate([*arrays, _NO_TOKENS])


def _breaks(tokens: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Where a row doesn't follow the one before it."""
    follows = np.diff(tokens["offset"]) == 1
    for name in ("partition", "delivery"):
        follows &= tokens[name][1:] == tokens[name][:-1]
    follows &= (tokens["topic"][1:] == tokens["topic"][:-1]).all(axis=1)
    return np.flatnonzero(~follows) + 1


def _run(token: Any, rows: int) -> Run:
    place = (int(token["partition"]), int(token["offset"]))
    return Run(token["topic"].tobytes(), *place, rows, int(token["delivery"]))
