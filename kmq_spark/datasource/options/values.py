"""Parses the texts of options: numbers, sizes, lengths of time, lists, places.

Each function takes the given options under lower-cased names and the proper name of one, and
raises InvalidRequestError with its name, its value and what was expected.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kmq_spark.datasource.options.known_options import NO_TABLES
from kmq_spark.datasource.refusal import refuse
from kmq_spark.datasource.store_url import with_storage_options
from kmq_storage.errors import InvalidRequestError
from kmq_storage.keyed.wanted import WantedQueues
from kmq_storage.names import check_name, nearest
from kmq_storage.objects.urls import absolute, is_relative

Given = Mapping[str, str]

_WHOLE_NUMBER = re.compile(r"[0-9]{1,19}\Z")
#: Spark holds numbers of rows, and offsets, in signed 64-bit integers.
LARGEST = 2**63 - 1

#: How Spark names the folder for the files of its sessions.
_SESSION_FOLDER = f"{os.sep}userFiles-"

#: A size or a length of time as Spark writes them: `64m`, `500kb`; `15m`, `90s`, `1min`.
_AMOUNT = re.compile(r"([0-9]{1,19})([a-z]*)\Z")
_BYTES = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_BYTES |= {f"{unit}b": factor for unit, factor in _BYTES.items()}
#: Units in seconds; Spark takes a number without one for milliseconds.
SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "": 1e-3,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3_600,
    "d": 86_400,
}

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")


def whole_number(given: Given, option: str) -> int | None:
    """A number from 1 on; None when it is not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not _WHOLE_NUMBER.match(text) or not 1 <= int(text) <= LARGEST:
        refuse(option, text, f"a whole number from 1 to {LARGEST}")
    return int(text)


def count(text: str, option: str) -> int:
    """A number from 0 on."""
    if not _WHOLE_NUMBER.match(text) or int(text) > LARGEST:
        refuse(option, text, f"a whole number from 0 to {LARGEST}")
    return int(text)


def size(given: Given, option: str) -> int | None:
    """A number of bytes of at least 1, such as 64m; None when it is not given."""
    found = _amount(given, option, _BYTES, "a size such as 64m or 500kb", least=1)
    return None if found is None else min(int(found), LARGEST)


def seconds(given: Given, option: str, default: float) -> float:
    """A length of time in Spark's words, such as 15m, 90s or 0s, in seconds."""
    found = _amount(given, option, SECONDS, "a length of time such as 15m, 90s or 500ms")
    return default if found is None else found


def _amount(
    given: Given, option: str, units: Mapping[str, float], expected: str, *, least: int = 0
) -> float | None:
    text = given.get(option.lower())
    if text is None:
        return None
    found = _AMOUNT.match(text.strip().lower())
    if not found or found[2] not in units or int(found[1]) < least:
        refuse(option, text, expected)
    return int(found[1]) * units[found[2]]


def boolean(given: Given, option: str, *, default: bool) -> bool:
    """True or false, in any letter case."""
    text = given.get(option.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        refuse(option, text, "true or false")
    return text.lower() == "true"


def choice(given: Given, option: str, choices: tuple[str, ...]) -> str | None:
    """One of some words, in any letter case; None when it is not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    if text.strip().lower() not in choices:
        near = nearest(text.strip().lower(), choices)
        refuse(option, text, f"one of {', '.join(choices)}{near}")
    return text.strip().lower()


def name(given: Given, option: str, kind: str) -> str | None:
    """The name of a group or a topic, without blanks around it; None when it is not given."""
    text = given.get(option.lower())
    return None if text is None else checked_name(option, kind, text.strip())


def checked_name(option: str, kind: str, text: str) -> str:
    """A name out of an option: InvalidRequestError when nothing can be called so."""
    try:
        return check_name(kind, text)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"option {option!r}: {error.message}", **error.context, option=option
        ) from None


def columns(given: Given, option: str) -> tuple[str, ...] | None:
    """Names separated by commas, or a JSON array of them, each once, in the order given.

    None when not given.
    """
    text = given.get(option.lower())
    if text is None:
        return None
    names = _array(text) or [each.strip() for each in text.split(",")]
    if "" in names or len(set(names)) < len(names):
        refuse(option, text, "names of columns with commas between them (or as JSON), each once")
    return tuple(names)


def queues(given: Given, option: str) -> WantedQueues | None:
    """Names of queues, and beginnings of names that end with a star; None when not given.

    They are separated by commas. In a JSON array each is a name as it is, or in base64, or either
    as a prefix.
    """
    text = given.get(option.lower())
    if text is None:
        return None
    if text.lstrip().startswith("["):  # a name that begins so has to be in an array
        wanted = _wanted(_listed(text))
        if wanted is None:
            example = '["a, b", {"base64": "/w=="}, {"prefix": "c, "}]'
            refuse(option, text, f"a JSON array of names of queues such as {example}")
        return wanted
    words = [utf8(each.strip()) for each in text.split(",")]
    if b"" in words:
        refuse(option, text, "names of queues, or beginnings such as user/*, with commas between")
    prefixes = tuple(each[:-1] for each in words if each.endswith(b"*"))
    return WantedQueues(tuple(each for each in words if not each.endswith(b"*")), prefixes)


def _wanted(listed: list[Any] | None) -> WantedQueues | None:
    """Return the queues of a JSON array; None where one of its elements is none."""
    begun = [each["prefix"] for each in listed or () if _has_only(each, "prefix")]
    prefixes = [_queue_name(each) for each in begun]
    names = [_queue_name(each) for each in listed or () if not _has_only(each, "prefix")]
    if listed is None or b"" in (*names, *prefixes):
        return None
    return WantedQueues(tuple(names), tuple(prefixes))


def _queue_name(element: Any) -> bytes:
    """Return the name of a queue in an element of a JSON array; nothing where there is none."""
    if isinstance(element, str):
        return utf8(element)
    if _has_only(element, "base64"):
        with suppress(ValueError):
            return b64decode(str(element["base64"]), validate=True)
    return b""


def _has_only(element: Any, member: str) -> bool:
    return isinstance(element, dict) and list(element) == [member]


def utf8(text: str) -> bytes:
    """Return a text as UTF-8; nothing for half a surrogate pair, which no name has."""
    with suppress(UnicodeEncodeError):
        return text.encode()
    return b""


def _listed(text: str) -> list[Any] | None:
    """The elements of a JSON array; None where it isn't one."""
    try:
        parsed = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, list) else None


def _array(text: str) -> list[str]:
    """The texts of a JSON array; none where it isn't one."""
    found = _listed(text) or []
    return found if all(isinstance(each, str) for each in found) else []


def ranges(given: Given, option: str) -> tuple[range, ...] | None:
    """Numbers and ranges of them such as 0,3,8-11; None when not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    found = [_RANGE.match(part.strip()) for part in text.split(",")]
    numbers = [range(int(m[1]), int(m[2] or m[1]) + 1) for m in found if m]
    if len(numbers) < len(found) or not all(numbers):
        refuse(option, text, "numbers of partitions such as 0,3,8-11")
    return tuple(numbers)


def json_object(option: str, text: str, example: str) -> dict[str, Any]:
    """The JSON object that an option holds; no name is in it twice."""
    try:
        parsed = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as problem:
        refuse(option, text, f"{example}: {problem}")
    if not isinstance(parsed, dict):
        refuse(option, text, example)
    return parsed


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def store_url(given: Given) -> str:
    """Return where the store is; a relative path is resolved here: executors run elsewhere."""
    path, store = given.get("path"), given.get("store")
    if path and store and path != store:
        refuse("store", store, f"the same place as 'path' ({path!r}), or only one of the two")
    url = path or store
    if not url:
        # Spark passes no options at all when it reads a table of a catalog.
        more = "" if given else f"; {NO_TABLES}"
        told = "the store is missing: name its folder as load(path), save(path) or option 'path'"
        raise InvalidRequestError(f"{told}{more}", option="path")
    if url.startswith("memory://"):
        refuse("path", url, "a folder: a store in memory is seen by one process, Spark has several")
    return with_storage_options(absolute_place("path" if path else "store", url), given)


def absolute_place(option: str, text: str) -> str:
    """Return a folder's full path, or the URL as it is."""
    # Under Spark Connect, Python runs in a temporary folder of the session.
    if is_relative(text) and _SESSION_FOLDER in os.getcwd():
        refuse(
            option,
            text,
            "a full path or a URL: under Spark Connect, a relative path says "
            "nothing, since the server reads it in a temporary folder",
        )
    return absolute(text)
