"""Checks the version of the format that a single file was written in."""

from __future__ import annotations

from collections.abc import Mapping

from kmq_storage import limits
from kmq_storage.errors import CorruptionError, FormatVersionError

FORMAT = b"kmq.format"


def check_format(said: bytes | None, file: str) -> None:
    """Raise FormatVersionError when the value of `kmq.format` in a file is that of a newer kmq.

    CorruptionError when the value is not a number, which no version of kmq writes.
    """
    if said is None or said == b"%d" % limits.FORMAT_VERSION:
        return
    if not said.isdigit():
        raise CorruptionError(f"{file} says no format version: its footer is damaged", file=file)
    version = said.decode(errors="replace")
    raise FormatVersionError(
        f"{file} has format {version}; this kmq reads up to {limits.FORMAT_VERSION}: install a "
        "newer kmq",
        file=file,
        version=version,
    )


def check_metadata(metadata: Mapping[bytes, bytes] | None, file: str) -> None:
    """Do the same as `check_format`, for the metadata of an opened file's schema."""
    check_format((metadata or {}).get(FORMAT), file)
