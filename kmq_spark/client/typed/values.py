"""Values of typed topics as Python has them: dicts and dataclasses, checked column by column.

A value is never changed to fit: what a column takes comes back equal. So a naive instant is refused
where a zone is declared, and so are digits that would be rounded away. Only `float32` rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from kmq_spark.client.records.declared_columns import NO_ROOM, has_narrow_parts, has_room
from kmq_spark.client.records.structured import is_structured, members_of
from kmq_spark.client.records.values import pairs_of
from kmq_spark.client.typed.scalars import Convert, MisfitError, scalar_converter
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.typed import stored_type
from kmq_storage.names import nearest


class RowChecker:
    """Checks values against a schema, and brings them into the form that Arrow takes."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: (field, _column_converter(field.type)) for field in schema}

    def check(self, topic: str, members: Mapping[Any, Any]) -> dict[str, Any]:
        """The columns of one value; InvalidRequestError names the one that is wrong."""
        for name in members:
            if name not in self._columns:
                raise InvalidRequestError(
                    f"topic {topic} has no column {name!r}{nearest(str(name), self._columns)}",
                    topic=topic,
                    column=name,
                )
        checked = {}
        for name, (field, convert) in self._columns.items():
            value = members.get(name)
            if value is None:
                _check_absent(topic, field, present=name in members)
            else:
                checked[name] = _converted(topic, field, convert, value)
        return checked


def _check_absent(topic: str, field: pa.Field, *, present: bool) -> None:
    if not field.nullable:
        what = "None" if present else "missing"
        raise InvalidRequestError(
            f"column {field.name!r} of topic {topic} is {what}, but not nullable",
            topic=topic,
            column=field.name,
        )


def _converted(topic: str, field: pa.Field, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except MisfitError as misfit:
        raise InvalidRequestError(
            f"column {field.name!r} of topic {topic} is {field.type}: {misfit}",
            topic=topic,
            column=field.name,
        ) from None


def _column_converter(kind: pa.DataType) -> Convert:
    """As `_converter_of`, for a whole column: what it holds has room in its dictionaries."""
    convert = _converter_of(kind)
    if not has_narrow_parts(kind):
        return convert
    stored = stored_type(kind)

    def converted(value: Any) -> Any:
        found = convert(value)
        if not has_room(pa.array([found], stored), kind):
            raise MisfitError(f"it {NO_ROOM}")
        return found

    return converted


def _converter_of(kind: pa.DataType) -> Convert:
    """What checks and converts a value that is not None; MisfitError says what is wrong."""
    types = pa.types
    if types.is_dictionary(kind):
        return _converter_of(kind.value_type)
    if types.is_struct(kind):
        return _struct_converter(kind)
    if types.is_map(kind):
        return _map_converter(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_converter(kind.value_field, None)
    if types.is_fixed_size_list(kind):
        return _list_converter(kind.value_field, kind.list_size)
    return scalar_converter(kind)


def _part_converter(field: pa.Field) -> Convert:
    """As `_converter_of`, for a part that may be None if its field says so."""
    convert = _converter_of(field.type)

    def converted(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if not field.nullable:
            raise MisfitError(f"{field.name!r} is None, but not nullable")
        return None

    return converted


def _check_lasting(value: Any) -> None:
    if isinstance(value, Iterator):  # empty when it is checked again, against a newer schema
        raise MisfitError(f"{value!r:.80} can be read only once: make a list of it")


def _list_converter(item: pa.Field, length: int | None) -> Convert:
    convert = _part_converter(item)

    def converted(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise MisfitError(f"{value!r:.80} is no list")
        _check_lasting(value)
        items = [convert(each) for each in value]
        if length is not None and len(items) != length:
            raise MisfitError(f"{len(items)} items are not {length}")
        return items

    return converted


def _struct_converter(kind: pa.StructType) -> Convert:
    parts = {field.name: _part_converter(field) for field in kind}

    def converted(value: Any) -> dict[str, Any]:
        if not is_structured(value):
            raise MisfitError(f"{value!r:.80} is no dict or dataclass")
        members = members_of(value)
        for name in members:
            if name not in parts:
                raise MisfitError(f"there is no field {name!r}{nearest(str(name), parts)}")
        return {name: convert(members.get(name)) for name, convert in parts.items()}

    return converted


def _map_converter(kind: pa.MapType) -> Convert:
    key, item = _part_converter(kind.key_field), _part_converter(kind.item_field)

    def converted(value: Any) -> list[tuple[Any, Any]]:
        _check_lasting(value)
        try:
            pairs = pairs_of(value.items() if isinstance(value, Mapping) else value)
        except (TypeError, ValueError):
            raise MisfitError(f"{value!r:.80} is no dict and no pairs") from None
        return [(key(name), item(each)) for name, each in pairs]

    return converted
