"""How commands print: text for people, or JSON for programs with --json.

As JSON, a list is one array, a fact is one object, and a stream (of records, of commits) is one
object per line.
"""

from __future__ import annotations

import base64
import dataclasses
import errno
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TextIO
from uuid import UUID

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """Prints the result of a command: as JSON, or as aligned columns and plain lines."""

    target: TextIO
    as_json: bool

    def rows(self, rows: Sequence[Row], *, named: str | None = None) -> None:
        """Print a list: one array, or a table with a heading; "nothing" for an empty one.

        The column `named` has the names of things: in JSON also as `name`, as each thing by itself.
        """
        if self.as_json:
            named_rows = [{"name": row[named], **row} for row in rows] if named else rows
            text = json.dumps(plain(named_rows), indent=2)
        else:
            text = "\n".join(aligned(rows)) if rows else "nothing"
        print(text, file=self.target)

    def fact(self, fact: Row, text: str) -> None:
        """Print one thing: the mapping as JSON, or the text."""
        print(json.dumps(plain(fact), indent=2) if self.as_json else text, file=self.target)

    def stream(self, fact: Row, text: bytes) -> None:
        """Print one item of a stream on a line of its own; text goes out as the given bytes."""
        if self.as_json:
            print(json.dumps(plain(fact)), file=self.target)
        else:
            self.target.flush()
            self.target.buffer.write(text + b"\n")

    def flush(self) -> None:
        """Write what is buffered now, so that it fails here if nobody reads it."""
        if getattr(self.target, "name", None) == os.devnull:  # the caller closed it
            raise OSError(errno.EBADF, "standard output is closed: nobody sees what is printed")
        self.target.flush()


def aligned(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table: the first row's keys as heading; numbers are right-aligned."""
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    numeric = [isinstance(rows[0][name], int | float) for name in names]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in [names, *cells]
    ]


def _cell(value: Any) -> str:
    shown = plain(value)
    if shown is None:
        return "-"
    if isinstance(shown, list):
        return ",".join(map(_cell, shown))
    return shown if isinstance(shown, str) else json.dumps(shown)


def plain(value: Any) -> Any:
    """Return the value in JSON's types; bytes as text where UTF-8, else as {"base64": ...}."""
    match value:
        case Enum():
            return plain(value.value)
        case float() if not math.isfinite(value):
            return json.dumps(value)  # as text, like Spark: JSON has no such numbers
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return _text_or_base64(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case Iterable():
            return [plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {
                field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
            }
    return str(value)


def _text_or_base64(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
