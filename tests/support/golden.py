"""Golden stores as tests open them: as they are kept, made anew, or without what can be rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kmq_storage.format.entries import Entry, RecordsEntry, decode_entries, encode_entry
from kmq_storage.format.frame import FrameHeader, decode_header, is_blank, read_directory
from kmq_storage.format.identity import decode_identity
from kmq_storage.log.state.store_state import StoreState
from tests.support.storage import open_folder

DATA = Path(__file__).resolve().parents[1] / "data"
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


def in_each_kind(golden: Path, make: Callable[[Path], object]) -> Any:
    """A fixture: a store of each of these kinds."""

    @pytest.fixture(params=KINDS)
    def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        return placed(request.param, golden, make, tmp_path / "store")

    return folder


def copied(golden: Path) -> Any:
    """A fixture: a copy of a golden store."""

    @pytest.fixture
    def folder(tmp_path: Path) -> Path:
        return Path(shutil.copytree(golden, tmp_path / "store"))

    return folder


def state_of(folder: Path) -> StoreState:
    """What a store says without being changed."""
    return open_folder(folder, read_only=True).refresh()


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
