"""JSON objects as bytes; those that prove themselves have a checksum of their other members."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kmq_storage.format.checksum import checksum


def compact_json(members: Mapping[str, Any]) -> bytes:
    """The JSON of these members without a space, for what has a checksum around it."""
    return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


def members_checksum(members: Mapping[str, Any]) -> int:
    """What proves these members, in whatever order they stand."""
    return checksum(json.dumps(members, sort_keys=True).encode())


def encode_members(members: Mapping[str, Any]) -> bytes:
    """The JSON of these members, with their checksum."""
    return json.dumps({**members, "crc32c": members_checksum(members)}).encode()


def decode_members(
    raw: bytes, names: Iterable[str], *, unproven: bool = False
) -> dict[str, Any] | None:
    """The members of these names, in the order they were written; None when bytes changed.

    With `unproven` those without a checksum are taken, too: an older version wrote none.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(raw)
        members = {name: found[name] for name in names}
        if raw == encode_members(members):
            return members
        if unproven and raw == json.dumps(members).encode():
            return members
    return None
