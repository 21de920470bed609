"""Messages as they are stored, and back.

A header is stored as readable text. Text that would be taken for a number is stored in quotes.
"""

from __future__ import annotations

import json
import socket
from functools import cache
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from kmq_spark.client.record_values import pairs_of
from kmq_spark.client.values import Extras, size_of
from kmq_spark.errors import InvalidRequestError
from kmq_storage.names import queue_of_log

#: Topic (or a queue's own log), partition, offset, body, headers, properties, UTC microseconds. A
#: plain tuple of simple values, since the garbage collector does not follow those.
Stored = tuple[str, int, int, bytes | None, tuple[Any, ...], tuple[Any, ...], int]
#: What follows from the place of a message is not stored with it.
DERIVED = frozenset(("Topic", "Queue", "MessageId", "StoreTimestamp", "StoreHost"))
#: Text that doesn't begin with one of these is no number.
_UNLIKE_TEXT = frozenset('"-0123456789in')


def messages_of(table: pa.Table | None) -> list[Stored]:
    """The messages of what a consumer got."""
    found: list[Stored] = []
    for batch in table.to_batches() if table is not None else ():
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        found += zip(
            columns["topic"].to_pylist(),
            columns["partition"].to_pylist(),
            columns["offset"].to_pylist(),
            columns["value"].to_pylist(),
            *(
                repeat(()) if column.null_count == len(column) else pairs_of(column)
                for column in (columns["headers"], columns["properties"])
            ),
            columns["timestamp"].view(pa.int64()).to_pylist(),
            strict=False,
        )
    return found


def extras_of(headers: dict[str, Any], properties: dict[str, Any], partition: int) -> Extras:
    """What is stored beside the body of a message, whose values were checked when they were put."""
    flat: list[Any] = []
    for name, value in headers.items():
        if name not in DERIVED:
            flat += name, encoded(value)
    facts = [*chain.from_iterable(properties.items())]
    size = size_of(flat, facts)
    return Extras(tuple(flat) or None, tuple(facts) or None, partition, None, size)


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


def headers_of(message: Stored, host: str) -> dict[str, Any]:
    """The headers of a stored message, those that follow from its place among them."""
    topic, partition, offset, _, headers, _, time = message
    queue, born = queue_of_log(topic), time // 1000
    found: dict[str, Any] = {
        "Topic" if queue is None else "Queue": topic if queue is None else queue,
        "MessageId": message_id(topic, partition, offset),
        "BornTimestamp": born,
        "StoreTimestamp": born,
        "StoreHost": host,
    }
    for name, data in headers:
        if data is not None and name not in DERIVED:
            found[name] = decoded(data)
    if "BornHost" not in found and "://" not in host:  # on a disk all are born on its host
        found["BornHost"] = born_host()
    return found


#: The host of this process.
born_host = cache(socket.gethostname)


def partition_of(name: object) -> tuple[str, int | None]:
    """The name and number in `topic:partition`; None for the number where there is only a name."""
    topic, colon, number = name.partition(":") if isinstance(name, str) else ("", ":", "")
    if colon and not number.isdecimal():
        raise InvalidRequestError(f"a partition is named as `topic:number`, not {name!r:.80}")
    return topic, int(number) if number else None


def message_id(topic: str, partition: int, offset: int) -> str:
    """The id of a message: its place."""
    return f"{topic}:{partition}:{offset}"
