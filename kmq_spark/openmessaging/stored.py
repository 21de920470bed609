"""Messages as they are stored, and back.

A header is stored as readable text. Text that would be taken for a number is stored in quotes.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from kmq_spark.client.record_values import pairs_of
from kmq_spark.client.values import PlainExtras, size_of
from kmq_spark.openmessaging.message import BytesMessage, message_id
from kmq_storage.names import queue_of_log

#: Topic (or a queue's own log), partition, offset, body, headers, properties, UTC microseconds,
#: and until when it may be handed out (UTC ms). A plain tuple of simple values, since the garbage
#: collector does not follow those.
Stored = tuple[str, int, int, bytes | None, tuple[Any, ...], tuple[Any, ...], int, float]
#: What follows from the place of a message is not stored with it.
DERIVED = frozenset(("Topic", "Queue", "MessageId", "StoreTimestamp", "StoreHost"))
#: Text that doesn't begin with one of these is no number.
_UNLIKE_TEXT = frozenset('"-0123456789in')


def messages_of(batches: Iterable[pa.RecordBatch]) -> list[Stored]:
    """The messages of what was read."""
    found: list[Stored] = []
    for batch in batches:
        names = ("topic", "partition", "offset", "value")
        plain = (batch.column(name).to_pylist() for name in names)
        pairs = (pairs_of(batch.column(name)) for name in ("headers", "properties"))
        times = batch.column("timestamp").view(pa.int64()).to_pylist()
        found += zip(*plain, *pairs, times, repeat(math.inf), strict=False)
    return found


def message_of(stored: Stored, host: str) -> BytesMessage:
    """A message as its receiver gets it; `host` is where the store is."""
    return BytesMessage(stored[3], headers_of(stored, host), dict(stored[5]))


def headers_of(stored: Stored, host: str) -> dict[str, Any]:
    """The headers of a message, those that follow from its place among them."""
    topic, partition, offset, _, headers, _, time, _ = stored
    kind, name = _target(topic)
    born = time // 1000
    found: dict[str, Any] = {
        kind: name,
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


@lru_cache(maxsize=1024)
def _target(topic: str) -> tuple[str, str]:
    """The header that names a topic, or the queue whose log it is."""
    queue = queue_of_log(topic)
    return ("Topic", topic) if queue is None else ("Queue", queue)


def key_of(headers: Mapping[str, Any]) -> bytes | None:
    """The key under which a message is stored."""
    key = headers.get("SearchKey", headers.get("ShardingKey"))
    return None if key is None else str(key).encode()


#: The host of this process.
born_host = cache(socket.gethostname)


def extras_of(message: BytesMessage, partition: int) -> PlainExtras:
    """What is stored beside the body of a message, whose values were checked when they were put."""
    flat: list[Any] = []  # `list[Any]()` takes fifteen times as long
    for name, value in message.header_values.items():
        if name not in DERIVED:
            flat += name, encoded(value)
    facts = tuple(chain.from_iterable(message.property_values.items()))
    return (tuple(flat) or None, facts or None, partition, None, size_of(flat, facts), None, b"")


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
    text = data.decode("utf-8", "replace")
    if text[:1] not in _UNLIKE_TEXT:
        return text
    try:
        if text[0] == '"':
            return json.loads(text)
        number = float(text) if {*text} & {*".einf"} else int(text)
    except ValueError:
        return text
    return number if repr(number) == text else text
