"""Headers and properties of records as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_PROPERTIES: Mapping[str, Any] = MappingProxyType({})


def plain_headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    """The pairs of stored headers."""
    return tuple((header["key"], header["value"]) for header in headers or ())


def plain_properties(properties: list[tuple[str, dict[str, Any]]] | None) -> dict[str, Any]:
    """Stored properties by name."""
    return {name: _only(members) for name, members in properties or ()}


def _only(members: dict[str, Any]) -> Any:
    """The one member that is set."""
    return next((value for value in members.values() if value is not None), None)
