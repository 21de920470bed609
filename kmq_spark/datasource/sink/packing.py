"""The small batches of a task in its message to the driver: all rows of a schema in one batch.

Batches of thousands of partitions are slices of the batches that Spark handed over. pyarrow pickles
all of such a batch with each of its slices, so a message with a row for each of 5,000 partitions
would take half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from kmq_storage.log.staging import PartitionRecords, SizedBatch


class Packed(NamedTuple):
    """Records of several partitions that have the same columns."""

    #: An Arrow IPC stream of one record batch.
    stream: bytes
    #: The partitions, without their batches.
    places: list[PartitionRecords]
    #: The rows and bytes of the batches of each.
    sizes: list[list[tuple[int, int]]]


def packed(small: Iterable[PartitionRecords]) -> list[Packed]:
    """Pack records for a message."""
    alike: dict[pa.Schema, list[PartitionRecords]] = {}
    for each in small:
        alike.setdefault(each.batches[0].batch.schema, []).append(each)
    return [_packed(schema, several) for schema, several in alike.items()]


def _packed(schema: pa.Schema, several: list[PartitionRecords]) -> Packed:
    batches = [sized.batch for each in several for sized in each.batches]
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, schema) as stream:
        stream.write_batch(pa.concat_batches(batches))
    return Packed(
        target.getvalue().to_pybytes(),
        [replace(each, batches=()) for each in several],
        [[(sized.batch.num_rows, sized.size) for sized in each.batches] for each in several],
    )


def unpacked(message: Iterable[Packed]) -> tuple[PartitionRecords, ...]:
    """Return the records of a message, as they were packed."""
    return tuple(records for each in message for records in _unpacked(each))


def _unpacked(message: Packed) -> Iterator[PartitionRecords]:
    rows = pa.ipc.open_stream(message.stream).read_next_batch()
    start = 0
    for place, sizes in zip(message.places, message.sizes, strict=True):
        batches = []
        for count, size in sizes:
            batches.append(SizedBatch(rows.slice(start, count), size))
            start += count
        yield replace(place, batches=tuple(batches))
