"""The parts of one record as users give them, checked and brought into the stored form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.checksum import digest_of
from kmq_storage.format.schedule_entry import Schedule
from kmq_storage.model import to_microseconds
from kmq_storage.numeric import whole

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
PropertyValue = int | float | str | bytes | bool
Properties = Mapping[str, PropertyValue]

#: The types of properties, and the members of the stored type that have them.
MEMBERS: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
}
#: The stored type of what is none of these types itself: of a subclass, or exactly one of numpy's.
_OTHERS: Mapping[type, type] = {
    **{kind: kind for kind in MEMBERS},
    np.bool_: bool,
    np.timedelta64: np.timedelta64,  # none of them, though numpy takes it for an integer
    np.integer: int,
    np.float32: float,
    np.float16: float,
}
#: By far the quickest check comes first.
_MAPPINGS = (dict, Mapping)
#: What unpacks into two things, perhaps, and is no pair of them.
_NO_PAIR = (str, bytes, dict)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Extras(NamedTuple):
    """The parts of a record that few records have, checked.

    What waits for its commit waits as `PlainExtras`: the garbage collector does not follow plain
    tuples of simple values, and would cost as much as everything else if it did.
    """

    #: Name, value, name, value, and so on.
    headers: tuple[Any, ...] | None = None
    #: The same; each value has exactly one of the types of `MEMBERS`.
    properties: tuple[Any, ...] | None = None
    partition: int | None = None
    #: UTC microseconds.
    timestamp: int | None = None
    #: Bytes of headers and properties with their names.
    size: int = 0
    #: When, and before which others, a record for a queue is handed out.
    schedule: Schedule | None = None
    #: The digest of its `uniq`; empty without one.
    uniq: bytes = b""


#: The same as a plain tuple, in which it waits for its commit.
PlainExtras = tuple[Any, ...]
#: Gets the member `size` of such a tuple.
size_among: Callable[[PlainExtras], int] = itemgetter(Extras._fields.index("size"))


def to_bytes(what: str, value: object, allowed: str = "bytes, text or None") -> bytes:
    """Return a key or value as bytes; text is encoded as UTF-8, other types are refused."""
    if isinstance(value, str):
        return _utf8(what, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRequestError(f"{what} must be {allowed}, not {type(value).__name__}", field=what)


def _check_utf8(what: str, text: str) -> None:
    if not text.isascii():
        _utf8(what, text)


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
    found = None if headers is None else _headers(headers)
    facts = None if properties is None else _properties(properties)
    when = None if timestamp is None else to_timestamp(timestamp)
    return Extras(
        found, facts, checked_optional_partition(partition), when, size_of(found or (), facts or ())
    )


def size_of(*flat: Iterable[Any]) -> int:
    """The bytes of checked headers and properties with their names; 8 of a number."""
    size = 0
    for value in chain.from_iterable(flat):
        kind = type(value)
        if kind is str:
            size += len(value) if value.isascii() else len(value.encode())
        elif kind is bytes:
            size += len(value)
        elif value is not None:
            size += 8
    return size


def checked_uniq(uniq: object) -> bytes:
    """Return the digest of bytes, or of a text as UTF-8; empty for None."""
    if uniq is None:
        return b""
    name = to_bytes("uniq", uniq)
    if not name:
        raise InvalidRequestError("uniq must not be empty", field="uniq")
    return digest_of(name)


def to_timestamp(when: object, what: str = "timestamp") -> int:
    """UTC microseconds of an aware datetime; naive ones and numbers are refused."""
    if not isinstance(when, datetime) or is_naive(when):
        raise InvalidRequestError(
            f"{what} must be a datetime with a time zone, not {when!r}", field=what
        )
    try:
        return to_microseconds(when.astimezone(UTC))
    except OverflowError:
        raise InvalidRequestError(
            f"{what} {when.isoformat()} lies outside the years 1 to 9999 of UTC", field=what
        ) from None


def is_naive(when: datetime) -> bool:
    """Whether a datetime has no offset from UTC; NaT has none to give."""
    return when.tzinfo is None or when.utcoffset() is None


def checked_optional_partition(partition: object) -> int | None:
    """Return the partition that a sender chose, or None; InvalidRequestError for anything else."""
    number = whole(partition)
    if partition is None or (number is not None and 0 <= number < 2**31):
        return number
    raise InvalidRequestError(
        f"partition must be a whole number from 0 to {2**31 - 1}, not {partition!r}",
        field="partition",
    )


def _headers(headers: Headers) -> tuple[Any, ...]:
    flat: list[Any] = []
    for name, value in headers.items() if isinstance(headers, _MAPPINGS) else _pairs(headers):
        if not isinstance(name, str):
            raise InvalidRequestError(f"header name must be text, not {name!r}", field="headers")
        _check_utf8("header name", name)
        plain = type(value) is bytes or value is None
        flat += (name, value if plain else to_bytes(f"header {name}", value))
    return tuple(flat)


def _pairs(headers: Any) -> list[tuple[Any, Any]]:
    try:
        return pairs_of(headers)
    except (TypeError, ValueError):
        raise InvalidRequestError(
            f"headers must be a mapping or pairs, not {headers!r}", field="headers"
        ) from None


def pairs_of(given: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs; TypeError or ValueError for anything else.

    Headers and maps as Arrow gives them, lists of dicts, would be pairs of the dicts' names.
    """
    pairs = list(given)
    if isinstance(given, _NO_PAIR) or any(isinstance(pair, _NO_PAIR) for pair in pairs):
        raise TypeError("no pairs")
    return [(name, value) for name, value in pairs]


def _properties(properties: Properties) -> tuple[Any, ...]:
    if not isinstance(properties, _MAPPINGS):
        raise InvalidRequestError(
            f"properties must be a mapping, not {type(properties).__name__}", field="properties"
        )
    flat: list[Any] = []
    for name, value in properties.items():
        flat += (_property_name(name), _property(name, value))
    return tuple(flat)


def _property_name(name: object) -> str:
    if isinstance(name, str) and name:
        _check_utf8("property name", name)
        return name
    raise InvalidRequestError(
        f"property name must be non-empty text, not {name!r}", field="properties"
    )


def _property(name: str, value: Any) -> PropertyValue:
    """Return a property's value in its stored type; it may be of a subclass, or of numpy."""
    kind = type(value)
    if kind not in MEMBERS:
        kind = next((own for given, own in _OTHERS.items() if isinstance(value, given)), kind)
        value = str.__str__(value) if kind is str else kind(value) if kind in MEMBERS else value
    if kind is str:
        _check_utf8(f"property {name}", value)
    if kind not in MEMBERS or (kind is int and not _INT64_MIN <= value <= _INT64_MAX):
        raise InvalidRequestError(
            f"property {name} must be a 64-bit int, float, text, bytes or bool, not {value!r:.80}",
            field="properties",
            name=name,
        )
    checked: PropertyValue = value
    return checked
