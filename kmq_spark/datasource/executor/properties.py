"""Properties on their way to Spark: a map of texts, since Spark's maps have one type of value."""

from __future__ import annotations

from base64 import b64encode

import pyarrow as pa

_TYPE = pa.map_(pa.string(), pa.string())


def properties_as_text(column: pa.Array) -> pa.Array:
    """Stored properties as map<string, string>.

    Text as it is, numbers in digits, true and false, bytes in Base64.
    """
    import pyarrow.compute as pc  # slow to import, and few need it

    values = column.items
    written = [values.field(name).cast(pa.string()) for name in ("text", "int", "float", "bool")]
    texts = pc.coalesce(*written, _base64(values.field("bytes")))
    entries = pa.StructArray.from_arrays(
        [column.keys, texts], fields=[_TYPE.key_field, _TYPE.item_field]
    )
    # Which entries are whose, and who has none, stays as it is stored.
    places = column.buffers()[:2]
    return pa.Array.from_buffers(
        _TYPE, len(column), places, column.null_count, column.offset, [entries]
    )


def _base64(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    texts = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())
