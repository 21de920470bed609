"""Golden stores as tests open them: as they are kept, made anew, or without what can be rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

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
