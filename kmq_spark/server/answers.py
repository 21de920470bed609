"""From a requested address to the answer: all addresses, and their options."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from urllib.parse import parse_qsl

import pyarrow as pa

from kmq_spark.server import metrics, page
from kmq_spark.server.view import Seen, View
from kmq_storage.errors import CorruptionError, InvalidRequestError, KmqError
from kmq_storage.maintenance.reports import StoreStats
from kmq_storage.tables.columns import COLUMNS

ARROW = "application/vnd.apache.arrow.stream"
_TEXT = "text/plain; charset=utf-8"
#: Default limits for tables that may have millions of rows; fewer commits, since one may have ten
#: thousand entries.
_LONG = {"segments": 1_000, "commits": 100}
_MOST_ROWS = 100_000
#: How many rows at a time are converted to values of Python.
_ROWS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    content: bytes
    media_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def refused(status: HTTPStatus, why: object, **headers: str) -> Answer:
    """Return the answer for a refusal or an error, as one line."""
    return Answer(_encoded(f"{' '.join(str(why).split())}\n"), status=status, headers=headers)


def _encoded(text: str) -> bytes:
    """Text as UTF-8; the path of a store may have bytes that are none."""
    return text.encode(errors="backslashreplace")


def answer(view: View, target: str, accept: str) -> Answer:
    """Return the answer to a GET of a path and query; `accept`: the media types asked for."""
    path, _, query = target.partition("?")
    try:
        match path.split("/"):
            case ["", ""]:
                return _page(view)
            case ["", "metrics"]:
                text = metrics.exposition(*_seen_and_counted(view, metrics.TABLES))
                return Answer(text.encode(), metrics.MEDIA_TYPE)
            case ["", "health"]:
                return _health(view)
            case ["", "tables", name] if name in COLUMNS:
                return _table(view, name, query, accept)
        return refused(HTTPStatus.NOT_FOUND, "there is /, /metrics, /health and /tables/<name>")
    except (KmqError, OSError) as error:
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, error)


def _page(view: View) -> Answer:
    text = page.page(*_seen_and_counted(view, page.TABLES))
    headers = {"Content-Security-Policy": page.POLICY}
    return Answer(_encoded(text), "text/html; charset=utf-8", headers=headers)


def _seen_and_counted(view: View, names: Collection[str]) -> tuple[Seen, StoreStats | None]:
    """Tables, and what the store is made of: None where that can't be counted for damage."""
    seen = view.seen(names)
    try:
        return seen, view.stats()
    except CorruptionError as error:
        return replace(seen, damage=seen.damage or str(error)), None


def _health(view: View) -> Answer:
    seen = view.seen()
    if seen.damage:
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, seen.damage)
    return Answer(b"ok\n")


def _table(view: View, name: str, query: str, accept: str) -> Answer:
    try:
        limit = _limit(name, query)
    except InvalidRequestError as error:
        return refused(HTTPStatus.BAD_REQUEST, error)
    table = view.table(name, limit)
    return _arrow(table) if _asks_for_arrow(accept) else _json(table)


def _limit(name: str, query: str) -> int | None:
    """Return how many rows are asked for; InvalidRequestError for a wrong number or option."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    text = given.pop("limit", None)
    if given:
        raise InvalidRequestError(f"a table takes ?limit=, not {', '.join(sorted(given))!r}")
    if text is None:
        return _LONG.get(name)
    if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= _MOST_ROWS:
        raise InvalidRequestError(f"limit must be 1 to {_MOST_ROWS}, not {text!r}")
    return int(text)


def _asks_for_arrow(accept: str) -> bool:
    return ARROW in (each.partition(";")[0].strip().lower() for each in accept.split(","))


def _arrow(table: pa.Table) -> Answer:
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, table.schema) as writer:
        writer.write_table(table)
    return Answer(target.getvalue().to_pybytes(), ARROW)


def _json(table: pa.Table) -> Answer:
    rows = ",\n".join(
        json.dumps(row, default=datetime.isoformat)
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    )
    return Answer(f"[{rows}]\n".encode(), "application/json")
