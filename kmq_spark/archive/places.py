"""Where an archive is, for those who read its files."""

from __future__ import annotations

import os
from typing import Any

from kmq_storage.objects.urls import absolute


def fixed(path: str | os.PathLike[str]) -> str:
    """The path or URL of an archive; a relative path is fixed now, `file:` is left out."""
    return absolute(os.fspath(path).rstrip("/")).removeprefix("file://")


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it."""
    import fsspec  # as all that an archive alone needs: each of Spark's workers would wait for it

    return fsspec.core.url_to_fs(path)  # type: ignore[no-any-return]
