"""Messages as Arrow columns and back, without a call per header.

A header is stored as readable text. Text that would be taken for a number is stored in quotes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from kmq_storage.format.records import (
    HEADERS_TYPE,
    PROPERTIES_TYPE,
    PROPERTY_TYPE,
    TIMESTAMP_TYPE,
)
from kmq_storage.names import queue_of_log

#: What follows from the place of a message is not stored with it.
DERIVED = frozenset(("Topic", "Queue", "MessageId", "StoreTimestamp", "StoreHost"))
#: Text that doesn't begin with one of these is no number.
_UNLIKE_TEXT = frozenset('"-0123456789in')
#: Body, key, headers, properties, UTC nanoseconds.
Row = tuple[bytes, bytes | None, dict[str, Any], dict[str, Any], int]


def encoded(value: Any) -> bytes:
    """A header as it is stored."""
    if type(value) is not str:
        return repr(value).encode()
    data = value.encode()
    if value[0] in _UNLIKE_TEXT and decoded(data) != value:
        return json.dumps(value).encode()
    return data


def decoded(data: bytes) -> Any:
    """A stored header with its type; what nobody here has stored is text."""
    text = data.decode(errors="replace")
    if text[:1] not in _UNLIKE_TEXT:
        return text
    try:
        if text[0] == '"':
            return json.loads(text)
        number = float(text) if {*text} & {*".einf"} else int(text)
    except ValueError:
        return text
    return number if repr(number) == text else text


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Messages in the columns that `Producer.send_arrow` takes."""
    bodies, keys, headers, properties, times = zip(*rows, strict=True)
    columns = {
        "value": pa.array(bodies, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "timestamp": pa.array([time // 1000 for time in times]).view(TIMESTAMP_TYPE),
        "headers": _headers(headers),
        "properties": _properties(properties),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _headers(rows: Sequence[dict[str, Any]]) -> pa.Array:
    pairs = [[(k, encoded(v)) for k, v in row.items() if k not in DERIVED] for row in rows]
    flat = list(chain.from_iterable(pairs))
    members = [
        pa.array([key for key, _ in flat], pa.string()),
        pa.array([value for _, value in flat], pa.binary()),
    ]
    structs = pa.StructArray.from_arrays(members, fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(_offsets(pairs), structs, type=HEADERS_TYPE)


def _properties(rows: Sequence[dict[str, Any]]) -> pa.Array:
    values = list(chain.from_iterable(map(dict.values, rows)))
    kinds = {"int": int, "float": float, "text": str, "bytes": bytes, "bool": bool}
    members = [
        pa.array([v if type(v) is kinds[field.name] else None for v in values], field.type)
        for field in PROPERTY_TYPE
    ]
    return pa.MapArray.from_arrays(
        _offsets(rows),
        pa.array(list(chain.from_iterable(rows)), pa.string()),
        pa.StructArray.from_arrays(members, fields=list(PROPERTY_TYPE)),
        PROPERTIES_TYPE,
    )


def _offsets(rows: Sequence[Any]) -> pa.Array:
    return pa.array(list(accumulate(map(len, rows), initial=0)), pa.int32())


class StoredRows:
    """Messages of one partition as they are stored: a batch of what consumers get."""

    __slots__ = ("_headers", "_host", "_properties", "_times", "bodies", "offsets", "place")

    def __init__(self, batch: pa.RecordBatch, host: str) -> None:
        names = batch.schema.names
        columns = {name: batch.column(number) for number, name in enumerate(names)}
        #: The topic, or the queue's own log, and the partition.
        self.place: tuple[str, int] = (
            columns["topic"][0].as_py(),
            columns["partition"][0].as_py(),
        )
        self.offsets: list[int] = columns["offset"].to_pylist()
        self.bodies: list[bytes | None] = columns["value"].to_pylist()
        self._times = columns["timestamp"].view(pa.int64()).to_pylist()
        headers, properties = columns["headers"], columns["properties"]
        self._headers = _flat(headers, *(() if not _any(headers) else headers.values.flatten()))
        items = () if not _any(properties) else properties.items.flatten()
        self._properties = _flat(properties, *((properties.keys, *items) if items else ()))
        self._host = host

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def header_names(self) -> set[str]:
        """The headers that some of them have."""
        return set(self._headers[1]) if self._headers else set()

    def headers(self, row: int) -> dict[str, Any]:
        """The headers of one, those that follow from its place among them."""
        (topic, partition), offset, born = self.place, self.offsets[row], self._times[row] // 1000
        queue = queue_of_log(topic)
        found: dict[str, Any] = {
            "Topic" if queue is None else "Queue": topic if queue is None else queue,
            "MessageId": f"{topic}:{partition}:{offset}",
            "BornTimestamp": born,
            "StoreTimestamp": born,
            "StoreHost": self._host,
        }
        if self._headers:
            bounds, names, values = self._headers
            for at in range(bounds[row], bounds[row + 1]):
                if values[at] is not None and names[at] not in DERIVED:
                    found[names[at]] = decoded(values[at])
        if "BornHost" not in found and "://" not in self._host:
            found["BornHost"] = socket.gethostname()
        return found

    def properties(self, row: int) -> dict[str, Any]:
        """The properties of one."""
        if not self._properties:
            return {}
        bounds, names, *members = self._properties
        return {
            names[at]: next((m[at] for m in members if m[at] is not None), None)
            for at in range(bounds[row], bounds[row + 1])
        }


def _any(column: pa.Array) -> bool:
    return bool(column.null_count < len(column))


def _flat(column: pa.Array, *members: pa.Array) -> list[list[Any]]:
    """Where each row begins among the members, and the members; nothing where there are none."""
    if not members:
        return []
    bounds = column.offsets.to_numpy()
    first, count = bounds[0], bounds[-1] - bounds[0]
    flat = (member.slice(first, count).to_pylist() for member in members)
    return [(bounds - first).tolist(), *flat]
