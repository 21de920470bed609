"""Typed topics: the schemas that they can have, and the Arrow types in which columns are stored.

Names of a topic's own columns never begin with `_`, so they can't collide with columns that kmq
adds. A column is stored in its *stored type*: a dictionary as its values and a view as plain text
or bytes, also inside lists, maps and structs. All other types are stored as they are.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from pyarrow import types

from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.records import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    PROPERTIES,
    PROPERTIES_TYPE,
    SEALED,
    TIMESTAMP_TYPE,
    TOMBSTONES,
    TYPED,
)

_VERSION_SHIFT = 5
#: The most versions of a schema, which have to fit between the two flags.
VERSIONS_MAX = 0x1FF

_EXTENSION = b"ARROW:extension:name"
_BEFORE = ((0, pa.field("_timestamp", TIMESTAMP_TYPE)), (KEY, pa.field("_key", pa.binary())))
_AFTER = (
    (HEADERS, pa.field("_headers", HEADERS_TYPE)),
    (PROPERTIES, pa.field("_properties", PROPERTIES_TYPE)),
    (TOMBSTONES, pa.field("_tombstone", pa.bool_())),
    (OFFSET, pa.field("_offset", pa.int64())),
)
#: The flags of the batches in a typed topic's segment.
SEALED_TYPED = TYPED | SEALED | TOMBSTONES


def is_own(name: str) -> bool:
    """Whether a column of a typed batch is the topic's own, and not added by kmq."""
    return not name.startswith("_")


def declared(schema: pa.Schema) -> str:
    """A schema in one line, for people."""
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)


def version_of(columns: int) -> int:
    """The version of the topic's schema in a batch's flags, from 1."""
    return columns >> _VERSION_SHIFT & VERSIONS_MAX


def versioned(columns: int, version: int) -> int:
    """The flags with a version of the topic's schema."""
    return columns | version << _VERSION_SHIFT


def typed_schema(own: Iterable[pa.Field], columns: int) -> pa.Schema:
    """The schema of a stored batch: own columns in stored types, and the optional ones.

    If it has all columns of a segment, they are in the order of a segment, with own ones first.
    """
    if columns & SEALED_TYPED == SEALED_TYPED:
        return _sealed_schema(own)
    before = [field for flag, field in _BEFORE if not flag or flag & columns]
    return pa.schema([*before, *own, *(field for flag, field in _AFTER if flag & columns)])


def _sealed_schema(own: Iterable[pa.Field]) -> pa.Schema:
    """The columns of a segment: own ones, the offset, the timestamp, and the optional ones."""
    added = [field for _, field in (*_BEFORE, *_AFTER)]
    return pa.schema([*own, added[-1], *added[:-1]])


def stored_type(declared: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is stored."""
    if types.is_dictionary(declared):
        return stored_type(declared.value_type)
    if types.is_string_view(declared):
        return pa.string()
    if types.is_binary_view(declared):
        return pa.binary()
    if types.is_struct(declared):
        return _with_stored(declared, list(declared), pa.struct)
    if types.is_map(declared):
        return _with_stored(
            declared,
            [declared.key_field, declared.item_field],
            lambda parts: pa.map_(*parts, keys_sorted=declared.keys_sorted),
        )
    return _stored_list(declared)


def _stored_list(declared: pa.DataType) -> pa.DataType:
    """The stored type of a list; another type as it is."""
    if types.is_list(declared):
        return _with_stored(declared, [declared.value_field], lambda parts: pa.list_(*parts))
    if types.is_large_list(declared):
        return _with_stored(declared, [declared.value_field], lambda parts: pa.large_list(*parts))
    if types.is_fixed_size_list(declared):
        size = declared.list_size
        return _with_stored(declared, [declared.value_field], lambda parts: pa.list_(*parts, size))
    return declared


def _with_stored(
    declared: pa.DataType,
    parts: Sequence[pa.Field],
    made: Callable[[list[pa.Field]], pa.DataType],
) -> pa.DataType:
    """A type made of the stored types of its parts; the declared one if they are the same."""
    stored = [part.with_type(stored_type(part.type)) for part in parts]
    same = all(one.type == part.type for one, part in zip(stored, parts, strict=True))
    return declared if same else made(stored)


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """The stored own columns of a topic, all nullable, since a tombstone has none of them."""
    return pa.schema([pa.field(field.name, stored_type(field.type)) for field in schema])


def encode_schema(schema: pa.Schema) -> str:
    """The schema as an Arrow IPC schema message in base64."""
    return b64encode(schema.serialize().to_pybytes()).decode()


def check_schema(schema: object) -> pa.Schema:
    """Check the schema of a topic; InvalidRequestError names a column that is not supported."""
    if not isinstance(schema, pa.Schema):
        raise InvalidRequestError(
            f"schema must be a pyarrow.Schema, not {type(schema).__name__}", setting="schema"
        )
    if not len(schema):
        raise InvalidRequestError("schema has no columns", setting="schema")
    counts = Counter(schema.names)
    for field in schema:
        if not field.name or field.name.startswith("_"):
            raise _refused(field.name, "begins with '_': such names are kmq's own, rename it")
        if counts[field.name] > 1:
            raise _refused(field.name, "is there twice")
        why = _why_unsupported(field.type) or _why_extended(field)
        if why is not None:
            raise _refused(field.name, f"of type {field.type} can't be stored: {why}")
    return schema


def _refused(name: str, why: str) -> InvalidRequestError:
    if not name:
        return InvalidRequestError("a column of the schema has no name", column=name)
    return InvalidRequestError(f"column {name!r} {why}", column=name)


def _why_extended(field: pa.Field) -> str | None:
    if field.metadata and _EXTENSION in field.metadata:
        return "extension types are not supported, use the type beneath"
    return None


def _why_unsupported(kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.BaseExtensionType):
        return f"extension types are not supported, use {kind.storage_type}"
    if types.is_union(kind) or types.is_run_end_encoded(kind):
        return "unions and run-end encoding are not supported"
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return "list views are not supported, use list"
    if types.is_dictionary(kind):
        return _why_no_dictionary(kind)
    if types.is_timestamp(kind):
        return _why_no_zone(kind)
    if types.is_nested(kind):
        parts = [kind.field(number) for number in range(kind.num_fields)]
        return next(filter(None, (_why_no_part(part) for part in parts)), None)
    return None


def _why_no_part(part: pa.Field) -> str | None:
    return _why_extended(part) or _why_unsupported(part.type)


def _why_no_dictionary(kind: pa.DictionaryType) -> str | None:
    why = _why_unsupported(kind.value_type)
    if why is not None:
        return why
    if kind.value_type != stored_type(kind.value_type):
        return f"dictionaries of {kind.value_type} are not supported"
    try:
        pa.nulls(1, kind.value_type).dictionary_encode()
    except pa.ArrowNotImplementedError:
        return f"dictionaries of {kind.value_type} are not supported"
    return None


def _why_no_zone(kind: pa.TimestampType) -> str | None:
    try:
        if kind.tz:
            pa.lib.string_to_tzinfo(kind.tz)  # `as_py()` does it, too, and imports pandas
    except Exception as error:  # what an unknown zone raises differs between libraries
        return f"its time zone is unknown here ({error!r})"
    return None
