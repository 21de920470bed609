"""URLs to disks: the only place that knows URL schemes."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import nearest
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.memory import memory_disk

_SCHEMES = ("file", "memory")


def open_disk(url: str | os.PathLike[str], *, read_only: bool = False) -> Disk:
    """The disk behind a path, a `file://` or `memory://name` URL; relative paths are fixed."""
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidRequestError(f"store {text!r} is not a path or URL")
    if "://" not in text:
        return _local(Path(text), read_only=read_only)
    parts = urlsplit(text)
    if parts.scheme in _SCHEMES and not (parts.netloc + parts.path).strip("/"):
        raise InvalidRequestError(f"store {text!r} names no place: {parts.scheme}://... and more")
    if parts.scheme == "memory":
        return memory_disk(parts.netloc + parts.path, read_only=read_only)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return _local(Path(unquote(parts.path)), read_only=read_only)
    raise InvalidRequestError(
        f"store scheme {parts.scheme!r} is unknown{nearest(parts.scheme, _SCHEMES)}; "
        "use a path, file:///... or memory://name",
        scheme=parts.scheme,
    )


def _local(path: Path, *, read_only: bool) -> LocalDisk:
    return LocalDisk(path.expanduser().absolute(), read_only=read_only)
