"""Filters: expressions on the properties of records, parsed once and evaluated on Arrow columns.

    amount >= 100 and (kind in ('order', 'refund') or not region = 'EU') and note is null

As in SQL, a comparison is unknown when the record doesn't have the property, or has it with another
kind of value. `not` of an unknown result is unknown too. A filter accepts only records for which
the expression is true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.plain_columns import flags_of, number_column, scalar, text_column
from kmq_storage.format.records import PROPERTIES_TYPE

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![A-Za-z_0-9])"
    r"|'(?P<text>(?:[^']|'')*)'"
    r"|\"(?P<quoted>(?:[^\"]|\"\")+)\""
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9.\-]*)"
    r"|(?P<sign><>|<=|>=|!=|=|<|>|\(|\)|,))"
)
#: The deepest nesting of an expression; deeper ones would exceed the interpreter's recursion limit.
_DEPTH_MAX = 100
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
#: How whole numbers compare with a fraction: as with the next whole number below it.
_BROKEN_AS = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}

Value: TypeAlias = Decimal | str | bool
#: Takes the columns of properties; returns a column of true, false and null (unknown).
Filter: TypeAlias = "Callable[[_Columns], pa.Array]"


class _Columns:
    """The properties of some records, as one column per name and kind of value."""

    def __init__(self, properties: pa.Array) -> None:
        self._properties = properties
        self._known: dict[str, pa.Array] = {}

    def values(self, name: str) -> pa.Array:
        """The property of this name in each record, as a struct; null where there is none."""
        if name not in self._known:
            found = pc.map_lookup(self._properties, scalar(name), "last")
            whole = found if isinstance(found, pa.Array) else found.combine_chunks()
            self._known[name] = whole
        return self._known[name]


def checked_filter(expression: object) -> str:
    """An expression that can be evaluated; InvalidRequestError says where it can't be."""
    if not isinstance(expression, str):
        raise InvalidRequestError(f"filter must be text, not {expression!r}", option="filter")
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        at = error.start + 1
        raise InvalidRequestError(
            f"filter {expression!r}: what is at character {at} is no text that can be stored",
            option="filter",
            position=at,
        ) from error
    parsed_filter(expression)
    return expression


@lru_cache(maxsize=256)
def parsed_filter(expression: str) -> Filter:
    """The filter of an expression; InvalidRequestError says where it can't be understood."""
    return _Parser(expression).whole()


def tagged(tags: str, expression: str | None) -> str | None:
    """The filter for records that have one of these tags (`a || b`) and match the expression.

    A record's tag is its property `tag`. `*` stands for all records, as in RocketMQ: also those
    without a tag.
    """
    names = [name.strip() for name in tags.split("||")] if isinstance(tags, str) else []
    if not all(names) or not names:
        raise InvalidRequestError(
            f"tags must be text such as 'paid || refunded', or '*', not {tags!r}", option="tags"
        )
    if names == ["*"]:
        return expression
    known = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    if expression is None:
        return f"tag in ({known})"
    checked_filter(expression)  # by itself: it may not close the bracket around it
    return f"tag in ({known}) and ({expression})"


def accepted(expression: str, properties: pa.Array | None, rows: int) -> pa.Array:
    """Which records a filter accepts; `properties` is their column, or None if none has any."""
    column = pa.nulls(rows, PROPERTIES_TYPE) if properties is None else properties
    return parsed_filter(expression)(_Columns(column)).fill_null(scalar(False))


def let_in(
    filter_at: Callable[[int], tuple[str | None, int | None]],
    offsets: Numbers,
    properties: pa.Array | None,
) -> Mask:
    """Which records a queue's filters accept, each the one that holds at its offset.

    `filter_at`: returns the filter at an offset, and the offset where the next one begins.
    """
    found = np.ones(len(offsets), np.bool_)
    begin = 0
    while begin < len(offsets):
        expression, following = filter_at(int(offsets[begin]))
        behind = len(offsets) if following is None else int(np.searchsorted(offsets, following))
        if expression is not None:
            some = None if properties is None else properties.slice(begin, behind - begin)
            found[begin:behind] = flags_of(accepted(expression, some, behind - begin))
        begin = behind
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent: or, and, not, a comparison."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(self._scanned())
        self._at = self._depth = 0

    def _scanned(self) -> Iterator[_Token]:
        position, text = 0, self._expression.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._wrong("an unknown sign", position)
            kind = found.lastgroup or ""
            word, begin = found[kind], found.start(kind)
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield _Token(kind, word, begin)
            position = found.end()

    def _wrong(self, what: str, position: int) -> InvalidRequestError:
        return InvalidRequestError(
            f"filter {self._expression!r}: {what} at character {position + 1}",
            option="filter",
            position=position + 1,
        )

    def whole(self) -> Filter:
        found = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at].text!r} is one too many", self._here())
        return found

    def _here(self) -> int:
        inside = self._at < len(self._tokens)
        return self._tokens[self._at].position if inside else len(self._expression)

    def _takes(self, *texts: str, kind: str | None = None) -> str | None:
        """The next token if it is one of these."""
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            good = token.kind == kind if kind else token.kind in ("word", "sign")
            if good and (kind or token.text in texts):
                self._at += 1
                return token.text
        return None

    def _expect(self, text: str) -> None:
        if self._takes(text) is None:
            raise self._wrong(f"{text!r} is missing", self._here())

    def _either(self) -> Filter:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return _joined(pc.or_kleene, parts)

    def _both(self) -> Filter:
        parts = [self._negated()]
        while self._takes("and"):
            parts.append(self._negated())
        return _joined(pc.and_kleene, parts)

    def _negated(self) -> Filter:
        if self._depth > _DEPTH_MAX:
            raise self._wrong(
                f"more than {_DEPTH_MAX} brackets and `not` in each other", self._here()
            )
        self._depth += 1
        found = self._within()
        self._depth -= 1
        return found

    def _within(self) -> Filter:
        if self._takes("not"):
            inner = self._negated()
            return lambda columns: pc.invert(inner(columns))
        if self._takes("("):
            inner = self._either()
            self._expect(")")
            return inner
        return self._condition()

    def _condition(self) -> Filter:
        quoted = self._takes(kind="quoted")
        name = quoted.replace('""', '"') if quoted else self._takes(kind="name")
        if name is None:
            raise self._wrong("the name of a property is missing", self._here())
        if self._takes("is"):
            wanted = self._takes("not") is None
            self._expect("null")
            return lambda columns: _is_null(columns, name, wanted)
        negated = self._takes("not") is not None
        if self._takes("in"):
            return self._in(name, negated=negated)
        sign = None if negated else self._takes(*_COMPARISONS)
        if sign is None:
            raise self._wrong("a comparison is missing", self._here())
        return _compared(name, sign, self._value())

    def _in(self, name: str, *, negated: bool) -> Filter:
        self._expect("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._expect(")")
        found = _is_one_of(name, values)
        return (lambda columns: pc.invert(found(columns))) if negated else found

    def _value(self) -> Value:
        position = self._here()
        if (text := self._takes(kind="text")) is not None:
            return text.replace("''", "'")
        if (number := self._takes(kind="number")) is not None:
            return _number(number)
        if (word := self._takes("true", "false")) is not None:
            return word == "true"
        raise self._wrong("a value is missing (text goes in single quotes)", position)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is too large
        return Decimal(float(text))


def _joined(how: Callable[[Any, Any], Any], parts: Sequence[Filter]) -> Filter:
    """Combine the parts in a loop, so that many parts don't exceed the recursion limit."""
    return lambda columns: reduce(how, (part(columns) for part in parts))


def _is_null(columns: _Columns, name: str, wanted: bool) -> pa.Array:
    found = columns.values(name).is_null()
    return found if wanted else pc.invert(found)


def _is_one_of(name: str, values: Sequence[Value]) -> Filter:
    """As `=` with each of them, but looked up at once by kind, since a list may be long."""
    flags = {each for each in values if isinstance(each, bool)}
    parts = [_compared(name, "=", each) for each in flags]
    if texts := [each for each in values if isinstance(each, str)]:
        parts.append(_is_text_of(name, text_column(texts)))
    if numbers := [each for each in values if not isinstance(each, str | bool)]:
        parts.append(_is_number_of(name, numbers))
    return _joined(pc.or_kleene, parts)


def _is_text_of(name: str, known: pa.Array) -> Filter:
    return lambda columns: _looked_up(pc.struct_field(columns.values(name), "text"), known)


def _is_number_of(name: str, numbers: Sequence[Decimal]) -> Filter:
    """By the rules of `_compared_numbers`."""
    whole = [int(each) for each in numbers if _fits(each) and each == math.floor(each)]
    known_whole, known_broken = number_column(np.array(whole, np.int64)), _floats(numbers)

    def found(columns: _Columns) -> pa.Array:
        values = columns.values(name)
        of_whole = _looked_up(pc.struct_field(values, "int"), known_whole)
        zero = scalar(0.0)  # turns -0.0, which is not looked up as the same, into 0.0
        of_broken = _looked_up(pc.add(pc.struct_field(values, "float"), zero), known_broken)
        return pc.coalesce(of_whole, of_broken)

    return found


def _floats(numbers: Iterable[Decimal]) -> pa.Array:
    return number_column(np.array([*map(float, numbers)], np.float64) + 0.0)


def _looked_up(column: pa.Array, known: pa.Array) -> pa.Array:
    """Whether each value is one of those known; null for null."""
    return pc.if_else(column.is_valid(), pc.is_in(column, known), pa.nulls(1, pa.bool_())[0])


def _compared(name: str, sign: str, value: Value) -> Filter:
    compare = _COMPARISONS[sign]

    def found(columns: _Columns) -> pa.Array:
        values = columns.values(name)
        if isinstance(value, bool):
            return compare(pc.struct_field(values, "bool"), scalar(value))
        if isinstance(value, str):
            return compare(pc.struct_field(values, "text"), scalar(value))
        return _compared_numbers(sign, values, value)

    return found


def _compared_numbers(sign: str, values: pa.Array, value: Decimal) -> pa.Array:
    """Compare whole numbers exactly, whatever their size, and floats with the nearest float."""
    whole, broken = pc.struct_field(values, "int"), pc.struct_field(values, "float")
    of_broken = _COMPARISONS[sign](broken, scalar(float(value)))
    return pc.coalesce(_compared_whole(sign, whole, value), of_broken)


def _compared_whole(sign: str, whole: pa.Array, value: Decimal) -> pa.Array:
    if not _fits(value):  # all whole numbers are on one side of it
        as_float = whole.cast(pa.float64(), safe=False)
        return _COMPARISONS[sign](as_float, scalar(math.inf if value > 0 else -math.inf))
    below = math.floor(value)
    if value == below:
        return _COMPARISONS[sign](whole, scalar(below))
    if sign in _BROKEN_AS:
        return _COMPARISONS[_BROKEN_AS[sign]](whole, scalar(below))
    flag = scalar(sign != "=")  # no whole number equals it
    return pc.if_else(whole.is_valid(), flag, pa.nulls(1, pa.bool_())[0])


def _fits(value: Decimal) -> bool:
    return -(2**63) <= value < 2**63
