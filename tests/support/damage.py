"""Damage as disks do it: a few bits of a file are others, where they are."""

from __future__ import annotations

import os
from pathlib import Path


def flip(file: Path, position: int, bits: int = 4) -> None:
    """Change bits of one byte in place: a log file has 64 MiB, and others may have it mapped."""
    fd = os.open(file, os.O_RDWR)
    try:
        (byte,) = os.pread(fd, 1, position)
        os.pwrite(fd, bytes([byte ^ bits]), position)
    finally:
        os.close(fd)


def flip_in_the_middle(file: Path) -> None:
    """Change a byte in the middle of a file."""
    flip(file, file.stat().st_size // 2)
