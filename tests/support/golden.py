"""Golden stores as tests open them: as they are kept, made anew, or without what can be rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kmq_storage.format.entries import Entry, RecordsEntry, decode_entries, encode_entry
from kmq_storage.format.frame import FrameHeader, decode_header, is_blank, read_directory
from kmq_storage.format.identity import decode_identity

KINDS = ("golden", "made now", "without the checkpoint")


def placed(kind: str, golden: Path, make: Callable[[Path], object], folder: Path) -> Path:
    """A store of one of these kinds in a new folder."""
    if kind == "made now":
        make(folder)
    else:
        shutil.copytree(golden, folder)
    if kind == "without the checkpoint":
        shutil.rmtree(folder / "checkpoints")
    return folder


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """A commit of a golden store, whose entries encode to the same bytes."""

    header: FrameHeader
    directory: bytes
    entries: list[Entry]
    contents: pa.Buffer


def golden_frames(golden: Path) -> Iterator[GoldenFrame]:
    """The frames of a golden store's log, in order."""
    seed = decode_identity((golden / "kmq.json").read_bytes(), "golden").seed
    for file in sorted((golden / "log").iterdir()):
        log, position = pa.py_buffer(file.read_bytes()), 0
        while not is_blank(log, position):
            header = decode_header(log, position, seed)
            directory = read_directory(log, position, header)
            entries = list(decode_entries(directory))
            staged = any(isinstance(entry, RecordsEntry) and entry.staged for entry in entries)
            again = b"".join(map(encode_entry, entries))
            # Staged ones are written shorter now.
            assert again == directory or (staged and len(again) < len(directory))
            yield GoldenFrame(header, directory, entries, log.slice(position, header.length))
            position += header.length
