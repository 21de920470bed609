"""A message, and the record that it is stored as, which any other program can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kmq_spark.client.records.record import Record
from kmq_spark.client.records.values import to_bytes
from kmq_spark.errors import InvalidRequestError

#: Headers of the record: the type of the body, and the message's headers as JSON.
_BODY, _HEADERS = "kmq.v2.body", "kmq.v2.headers"


@dataclass(frozen=True, slots=True)
class KmqMessage:
    """A message: headers (a dict or None), and a body of bytes, text or anything JSON can say."""

    headers: Mapping[str, Any] | None
    body: Any


def encoded(message: object) -> tuple[bytes, dict[str, bytes]]:
    """Return the value and the headers of its record.

    InvalidRequestError for a body that would not come back as it is.
    """
    if not isinstance(message, KmqMessage):
        raise InvalidRequestError(f"message must be a KmqMessage, not {message!r:.80}")
    headers, body = {}, message.body
    if message.headers is not None:
        headers[_HEADERS] = _to_json("headers", message.headers)
    if type(body) is bytes:
        return body, headers
    if type(body) is str:
        return to_bytes("body", body), headers | {_BODY: b"text"}
    return _to_json("body", body), headers | {_BODY: b"json"}


def _to_json(what: str, value: Any) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False)
        is_same = _is_plain(value) and repr(json.loads(text)) == repr(value)
        if is_same and (what == "body" or isinstance(value, dict)):
            return text.encode()
        why = "it would come back as something else"  # a tuple as a list, a number that is a key
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)
    said = "bytes, text or what JSON can say" if what == "body" else "a dict that JSON can say"
    said += f"; this {type(value).__name__} is not: {why}"  # its repr may fail as JSON does
    raise InvalidRequestError(f"{what} must be {said}", field=what)


def _is_plain(value: Any) -> bool:
    """Whether it is of no types but those that JSON gives back."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(each) for key, each in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def decoded(record: Record) -> KmqMessage:
    """Return the message of a record; a record of other programs has its value as the body.

    InvalidRequestError for one that has the headers of a message, and is none.
    """
    headers, body = dict(record.headers), record.value
    own, kind = headers.get(_HEADERS), headers.get(_BODY)
    try:
        if kind == b"text":
            body = body.decode()
        elif kind == b"json":
            body = json.loads(body)
        return KmqMessage(None if own is None else json.loads(own), body)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        place = f"offset {record.offset} of {record.topic}-{record.partition}"
        raise InvalidRequestError(
            f"the record at {place} has headers of a KmqMessage, and is none: {error}",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        ) from error
