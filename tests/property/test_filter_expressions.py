"""Filters against SQLite, whose three-valued logic and precedence they share.

Finds: `and` that binds no stronger than `or`, brackets or a `not` that reach too far, an unknown
result that becomes false.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TypeAlias

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kmq_storage.format.records import PROPERTIES_TYPE, PROPERTY_TYPE
from kmq_storage.queues import filters

_Row: TypeAlias = tuple[int | None, int | None, str | None]
_NAMES = "n", "m", "t"

_number = st.integers(-1, 2)
_text = st.sampled_from(("", "a", "b", "it's"))
_rows = st.tuples(st.none() | _number, st.none() | _number, st.none() | _text)
_signs = st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">="))
_quoted = _text.map(lambda text: "'" + text.replace("'", "''") + "'")


def _conditions(name: st.SearchStrategy[str], value: st.SearchStrategy[str]) -> st.SearchStrategy:
    values = st.lists(value, min_size=1, max_size=3).map(", ".join)
    within, null = st.sampled_from(("in", "not in")), st.sampled_from(("is null", "is not null"))
    return (
        st.tuples(name, _signs, value).map(" ".join)
        | st.tuples(name, within, values).map(lambda parts: "{} {} ({})".format(*parts))
        | st.tuples(name, null).map(" ".join)
    )


_expressions = st.recursive(
    _conditions(st.sampled_from(("n", "m", '"n"')), _number.map(str))
    | _conditions(st.just("t"), _quoted),
    lambda inner: (
        st.tuples(inner, st.sampled_from(("and", "or", "AND", "Or")), inner).map(" ".join)
        | inner.map("({})".format)
        | inner.map("not {}".format)
    ),
    max_leaves=8,
)


def _by_sqlite(expression: str, rows: list[_Row]) -> list[bool | None]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table rows (n integer, m integer, t text)")
        database.executemany("insert into rows values (?, ?, ?)", rows)
        found = database.execute(f"select {expression} from rows order by rowid").fetchall()
    return [None if result is None else bool(result) for (result,) in found]


def _by_filter(expression: str, rows: list[_Row]) -> list[bool | None]:
    empty = dict.fromkeys(PROPERTY_TYPE.names)
    properties = [
        [
            (name, empty | {"text" if isinstance(value, str) else "int": value})
            for name, value in zip(_NAMES, row, strict=True)
            if value is not None
        ]
        for row in rows
    ]
    columns = filters._Columns(pa.array(properties, PROPERTIES_TYPE))
    found: list[bool | None] = filters.parsed_filter(expression)(columns).to_pylist()
    return found


@example("n = 1 or n = 2 and m = 1", [(1, None, None), (2, None, None), (2, 1, None)])
@example("not n = 1 and m = 1", [(1, 1, None), (2, None, None), (None, 2, None)])
@example("not (n = 1 and m = 1)", [(1, 1, None), (2, None, None), (1, None, None)])
@given(_expressions, st.lists(_rows, min_size=1, max_size=8))
def test_an_expression_says_what_sqlite_says(expression: str, rows: list[_Row]):
    assert _by_filter(expression, rows) == _by_sqlite(expression, rows)
