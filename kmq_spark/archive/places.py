"""Where an archive is, for those who read its files."""

from __future__ import annotations

import os
from typing import Any

import fsspec


def fixed(path: str | os.PathLike[str]) -> str:
    """The path or URL of an archive; a relative path is fixed now, `file:` is left out."""
    text = os.fspath(path).rstrip("/")
    for prefix in ("file://", "file:"):
        text = text.removeprefix(prefix)
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it."""
    return fsspec.core.url_to_fs(path)  # type: ignore[no-any-return]
