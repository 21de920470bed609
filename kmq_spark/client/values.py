"""What users hand in for one record, checked and brought into the stored form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.queue_entries import Schedule
from kmq_storage.format.uniq_entry import digest_of
from kmq_storage.model import to_microseconds

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
PropertyValue = int | float | str | bytes | bool
Properties = Mapping[str, PropertyValue]

_EMPTY = {"int": None, "float": None, "text": None, "bytes": None, "bool": None}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts of a record that few records have, in the stored form."""

    headers: list[dict[str, Any]] | None = None
    properties: list[tuple[str, dict[str, Any]]] | None = None
    partition: int | None = None
    #: UTC microseconds.
    timestamp: int | None = None
    #: Bytes of headers and properties with their names.
    size: int = 0
    #: Of a record that is sent to a queue, when and before which others it is handed out.
    schedule: Schedule | None = None
    #: The digest of what it is not to be stored a second time for; empty for nothing.
    uniq: bytes = b""


def to_bytes(what: str, value: object) -> bytes:
    """A key or value as bytes; text is UTF-8 encoded, other types are refused."""
    if isinstance(value, str):
        return _utf8(what, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRequestError(
        f"{what} must be bytes, text or None, not {type(value).__name__}", field=what
    )


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{what} is no valid text: {error}", field=what) from None


def checked_extras(
    headers: Headers | None,
    properties: Properties | None,
    partition: int | None,
    timestamp: datetime | None,
) -> Extras:
    """The checked parts of one record; InvalidRequestError names the one that is wrong."""
    stored_headers = None if headers is None else _headers(headers)
    stored_properties = None if properties is None else _properties(properties)
    return Extras(
        stored_headers,
        stored_properties,
        _partition(partition),
        None if timestamp is None else to_timestamp(timestamp),
        _size(stored_headers, stored_properties),
    )


def checked_uniq(uniq: object) -> bytes:
    """The digest of a text, empty for None; InvalidRequestError for what is no text."""
    if uniq is None:
        return b""
    if not isinstance(uniq, str) or not uniq:
        raise InvalidRequestError(f"uniq must be non-empty text, not {uniq!r:.80}", field="uniq")
    _utf8("uniq", uniq)
    return digest_of(uniq)


def to_timestamp(when: object, what: str = "timestamp") -> int:
    """UTC microseconds of an aware datetime; naive ones and numbers are refused."""
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidRequestError(
            f"{what} must be a datetime with a time zone, not {when!r}", field=what
        )
    try:
        return to_microseconds(when.astimezone(UTC))
    except OverflowError:
        raise InvalidRequestError(
            f"{what} {when.isoformat()} lies outside the years 1 to 9999 of UTC", field=what
        ) from None


def _partition(partition: object) -> int | None:
    if partition is None or (type(partition) is int and partition >= 0):
        return partition
    raise InvalidRequestError(
        f"partition must be a whole number from 0, not {partition!r}", field="partition"
    )


def _headers(headers: Headers) -> list[dict[str, Any]]:
    try:
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if any(isinstance(pair, str) for pair in pairs):
            raise TypeError("two letters are no pair")
        pairs = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise InvalidRequestError(
            f"headers must be a mapping or pairs, not {headers!r}", field="headers"
        ) from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise InvalidRequestError(f"header name must be text, not {name!r}", field="headers")
        _utf8("header name", name)
    return [
        {"key": name, "value": None if value is None else to_bytes(f"header {name}", value)}
        for name, value in pairs
    ]


def _properties(properties: Properties) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(properties, Mapping):
        raise InvalidRequestError(
            f"properties must be a mapping, not {type(properties).__name__}", field="properties"
        )
    return [(_property_name(name), _property(name, value)) for name, value in properties.items()]


def _property_name(name: object) -> str:
    if isinstance(name, str) and name:
        _utf8("property name", name)
        return name
    raise InvalidRequestError(
        f"property name must be non-empty text, not {name!r}", field="properties"
    )


def _property(name: str, value: object) -> dict[str, Any]:
    match value:
        case bool():
            member = "bool"
        case int() if _INT64_MIN <= value <= _INT64_MAX:  # of an enum's member a range asks each
            member = "int"
        case float():
            member = "float"
        case str():
            _utf8(f"property {name}", value)
            member = "text"
        case bytes():
            member = "bytes"
        case _:
            raise InvalidRequestError(
                f"property {name} must be a 64-bit int, float, text, bytes or bool, "
                f"not {value!r:.80}",
                field="properties",
                name=name,
            )
    return _EMPTY | {member: value}


def _size(
    headers: list[dict[str, Any]] | None, properties: list[tuple[str, dict[str, Any]]] | None
) -> int:
    total = sum(len(h["key"].encode()) + len(h["value"] or b"") for h in headers or ())
    for name, members in properties or ():
        text, data = members["text"], members["bytes"]
        total += len(name.encode())
        total += len(text.encode()) if text is not None else len(data) if data is not None else 8
    return total
