"""JSON objects as bytes, optionally with a member that has the checksum of all others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kmq_storage.format.checksum import checksum


def compact_json(members: Mapping[str, Any]) -> bytes:
    """The JSON of these members without spaces and checksum, for data that a checksum covers."""
    return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


def members_checksum(members: Mapping[str, Any]) -> int:
    """The checksum of these members, independent of their order."""
    return checksum(json.dumps(members, sort_keys=True).encode())


def encode_members(members: Mapping[str, Any]) -> bytes:
    """The JSON of these members, with their checksum."""
    return json.dumps({**members, "crc32c": members_checksum(members)}).encode()


def decode_members(
    raw: bytes, names: Iterable[str], *, unproven: bool = False
) -> dict[str, Any] | None:
    """The members with these names, in the order of the JSON; None when bytes changed.

    With `unproven`, JSON without a checksum is accepted too: an older version wrote none.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(raw)
        members = {name: found[name] for name in names}
        if raw == encode_members(members):
            return members
        if unproven and raw == json.dumps(members).encode():
            return members
    return None
