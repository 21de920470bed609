"""Messages as they are stored, and back.

A header is stored as readable text. Text that would be taken for a number is stored in quotes.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count, repeat
from typing import Any

import pyarrow as pa

from kmq_spark.client.encoding.waiting_extras import WaitingExtras, packed_extras, waiting_extras
from kmq_spark.client.records.stored_extras import StoredExtras, stored_extras
from kmq_spark.client.store import Store
from kmq_spark.openmessaging.message import BytesMessage, ids_of
from kmq_storage.format.plain_columns import numbers_of
from kmq_storage.format.records import column_of, timestamps_of
from kmq_storage.names import queue_of_log

#: Topic (or a queue's own log), partition, offset, body, headers of all messages there, what their
#: ids begin with, where headers and properties are and in which row, UTC microseconds, until when
#: it may be handed out (UTC ms).
Stored = tuple[str, int, int, bytes | None, dict[str, Any], str, StoredExtras, int, int, float]
#: What follows from the place of a message is not stored with it.
DERIVED = frozenset(("Topic", "Queue", "MessageId", "StoreTimestamp", "StoreHost"))
#: Text that doesn't begin with one of these is no number.
_UNLIKE_TEXT = frozenset('"-0123456789in')
_UNLIKE = "".join(_UNLIKE_TEXT).encode()


def extras_in(batch: pa.RecordBatch) -> StoredExtras:
    """Return the headers and properties of the messages of a batch."""
    return stored_extras(column_of(batch, "headers"), column_of(batch, "properties"))


def messages_of(
    place: tuple[str, int],
    offsets: list[int],
    batch: pa.RecordBatch,
    extras: StoredExtras,
    shared: Mapping[str, Any],
) -> Iterator[Stored]:
    """The messages of a batch of one partition, each made when it is its turn.

    Thousands at once would make the garbage collector look at all of them. `shared`: headers that
    all messages have.
    """
    queue = queue_of_log(place[0])
    kind, name = ("Topic", place[0]) if queue is None else ("Queue", queue)
    # With all names, so that a copy of it doesn't grow.
    common = {kind: name, "MessageId": "", "BornTimestamp": 0, "StoreTimestamp": 0, **shared}
    topic, partition, headers, ids, of = map(repeat, (*place, common, ids_of(*place), extras))
    bodies, times = batch.column("value").to_pylist(), numbers_of(timestamps_of(batch)).tolist()
    rest = of, count(), times, repeat(math.inf)
    return zip(topic, partition, offsets, bodies, headers, ids, *rest, strict=False)


def shared_headers(store: Store) -> dict[str, Any]:
    """Return the headers that all messages of a store have; in a bucket they are born anywhere."""
    found = {"StoreHost": store.url}
    return found if store.log.is_remote else {**found, "BornHost": born_host()}


def message_of(stored: Stored) -> BytesMessage:
    """Return a message as its receiver gets it."""
    return BytesMessage(stored[3], headers_of(stored), stored[6].properties(stored[7]))


def headers_of(stored: Stored) -> dict[str, Any]:
    """Return the headers of a message, with those that follow from its place."""
    _, _, offset, _, common, ids, extras, row, time, _ = stored
    found = common.copy()
    found["MessageId"] = ids + str(offset)
    found["BornTimestamp"] = found["StoreTimestamp"] = time // 1000
    extras.add_headers(found, row, DERIVED, decoded, _UNLIKE)
    return found


def key_of(headers: Mapping[str, Any]) -> bytes | None:
    """Return the key under which a message is stored."""
    key = headers.get("SearchKey", headers.get("ShardingKey"))
    return None if key is None else str(key).encode()


#: The host of this process.
born_host = cache(socket.gethostname)


def extras_of(message: BytesMessage, partition: int) -> WaitingExtras:
    """Return what is stored beside the body of a message; its values were checked by `put`."""
    headers, properties = message.header_values, message.property_values
    packed = packed_extras(
        headers, properties or None, partition, left_out=DERIVED, encode=encoded, unlike=_UNLIKE
    )
    if packed is not None:
        return packed
    texts = {name: encoded(value) for name, value in headers.items() if name not in DERIVED}
    return waiting_extras(texts or None, properties or None, partition)


def encoded(value: Any) -> bytes:
    """Return a header's value as it is stored."""
    if type(value) is not str:
        return repr(value).encode()
    data = value.encode()
    if value[0] in _UNLIKE_TEXT and decoded(data) != value:
        return json.dumps(value).encode()
    return data


def decoded(data: bytes) -> Any:
    """Return a stored header's value with its type; text if another program stored it."""
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
