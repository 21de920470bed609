"""The page for people: tables of the store, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import islice
from typing import Any

import pyarrow as pa

from kmq_spark.server.view import Seen
from kmq_storage.maintenance.reports import StoreStats

#: The tables of the page, in its order.
TABLES = ("topics", "partitions", "groups", "members", "queues", "commits")
#: How many rows of a table are shown; each table has an address of its own for all of them.
_SHOWN_ROWS = 500
_REFRESH_SECONDS = 10
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:1.5em}"
    "div{overflow-x:auto}table{border-collapse:collapse}"
    "th,td{padding:.15em .7em;border-bottom:1px solid #8885;text-align:left;vertical-align:top}"
    "td:not(:last-child),th{white-space:nowrap}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}.damage{color:#d33}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: What a browser may do with the page: apply its style, and nothing else.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def page(seen: Seen, stats: StoreStats | None) -> str:
    """The whole page."""
    url = escape(seen.url)
    damage = f'<p class="damage">{escape(seen.damage)}</p>' if seen.damage else ""
    sections = "".join(_section(name, seen.tables.get(name)) for name in TABLES)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="refresh" content="{_REFRESH_SECONDS}">'
        f"<title>kmq: {url}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{url}</h1><p>{_as_of(seen)}; "
        '<a href="/metrics">metrics</a> <a href="/health">health</a> '
        f'<a href="/tables/segments">segments</a></p>{damage}\n{sections}{_storage(stats)}'
        "</body></html>\n"
    )


def _as_of(seen: Seen) -> str:
    if seen.time is None:
        return "no commit yet"
    return f"as of commit {seen.lsn:,}, {_cell(seen.time)}"


def _section(name: str, table: pa.Table | None) -> str:
    head = f'<h2><a href="/tables/{name}">{name}</a></h2>\n'
    if table is None:
        return f"{head}<p>They can't be read.</p>\n"
    if not table.num_rows:
        return f"{head}<p>none</p>\n"
    rows = table.slice(0, _SHOWN_ROWS).to_pylist(maps_as_pydicts="strict")
    if name == "commits":
        rows.reverse()  # the newest first
    left = table.num_rows - len(rows)
    more = f"<p>and {left:,} more</p>\n" if left else ""
    return f"{head}{_table(table.column_names, [row.values() for row in rows])}{more}"


def _table(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Make a table of the columns with any value; numbers and their headings are to the right."""
    columns = zip(names, zip(*rows, strict=True), strict=True)
    told = [_column(name, values) for name, values in columns if any(v is not None for v in values)]
    lines = "".join(f"<tr>{''.join(line)}</tr>\n" for line in zip(*told, strict=True))
    return f"<div><table>{lines}</table></div>\n"


def _column(name: str, values: Sequence[Any]) -> list[str]:
    kind = ' class="n"' if all(map(_is_number_or_none, values)) else ""
    cells = [f"<td{kind}>{escape(_cell(value))}</td>" for value in values]
    return [f"<th{kind}>{escape(name)}</th>", *cells]


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    """Return a value as text; numbers have separators, structs and lists show their members."""
    match value:
        case None:
            return ""
        case str():
            return value
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
        case Mapping():
            told = {name: item for name, item in value.items() if item is not None}
            return " ".join(f"{name}={_cell(told[name])}" for name in told if name != "topic_id")
        case _:
            shown = ", " if all(isinstance(each, int | str) for each in value) else "; "
            return shown.join(map(_cell, islice(value, _SHOWN_ROWS)))


def _storage(stats: StoreStats | None) -> str:
    if stats is None:
        return "<h2>files</h2>\n<p>They can't be counted.</p>\n"
    kinds = [(kind, stats.files[kind], size) for kind, size in stats.bytes.items()]
    kinds += [
        ("of these shared", stats.shared_files, stats.shared_bytes),
        ("of these garbage", stats.garbage_files, stats.garbage_bytes),
    ]
    told = (
        f"{stats.rows:,} records of {stats.payload:,} bytes, written "
        f"{stats.write_amplification:.2f} times; {stats.small_segments:,} small segments"
    )
    return f"<h2>files</h2>\n{_table(('kind', 'files', 'bytes'), kinds)}<p>{told}</p>\n"
