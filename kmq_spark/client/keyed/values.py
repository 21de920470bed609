"""Names and messages of keyed queues: as bytes on their way in, as text on their way out."""

from __future__ import annotations

import pyarrow as pa

from kmq_spark.client.records.values import to_bytes
from kmq_spark.errors import InvalidRequestError
from kmq_storage import limits


def queue_name(queue: str | bytes) -> bytes:
    """The name of a queue as bytes; InvalidRequestError unless it can be one."""
    name = queue if type(queue) is bytes else _name(queue)
    if not 1 <= len(name) <= limits.QUEUE_NAME_BYTES_MAX:
        raise wrong_length(len(name))
    return name


def wrong_length(length: int) -> InvalidRequestError:
    """Return the error for a queue name of this many bytes."""
    return InvalidRequestError(
        f"the name of a queue has {length} bytes; 1 to {limits.QUEUE_NAME_BYTES_MAX} are allowed",
        field="queue",
    )


def _name(queue: object) -> bytes:
    if not isinstance(queue, str | bytes):
        raise InvalidRequestError(
            f"the name of a queue must be text or bytes, not {type(queue).__name__}", field="queue"
        )
    return to_bytes("queue", queue)


def message_bytes(message: object) -> bytes:
    """A message as bytes; InvalidRequestError unless it is bytes or text."""
    if not isinstance(message, str | bytes | bytearray | memoryview):
        kind = None if message is None else type(message).__name__
        raise InvalidRequestError(f"a message must be bytes or text, not {kind}", field="message")
    return to_bytes("message", message)


def texts_of(names: pa.Array) -> list[str | bytes]:
    """Names as text, where they are UTF-8."""
    try:
        texts: list[str | bytes] = names.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:
        return [text_of(name) for name in names.to_pylist()]
    return texts


def text_of(name: bytes) -> str | bytes:
    """The name of a queue: text where it is UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
