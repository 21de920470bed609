"""Which files of a folder this process has open, also those that have lost their names."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # another thread's, closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [file for file in found if Path(file).is_relative_to(folder)]
