"""A small file system of its own, in a file, that can fail: needs root and loop devices."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

#: Asks a file system to go down at once (EXT4_IOC_SHUTDOWN), and not to write its journal first.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2


def missing_loop_disk(kind: str = "ext4") -> str:
    """Why there can be none here; empty when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "mounting a file system of its own needs Linux and root"
    missing = [name for name in (f"mkfs.{kind}", "mount", "umount") if shutil.which(name) is None]
    return f"{missing[0]} is not installed" if missing else ""


class LoopDisk:
    """An ext4, or another kind, in a file.

    `mount` before use, `unmount` when everything on it is closed.
    """

    def __init__(self, folder: Path, *, megabytes: int, kind: str = "ext4") -> None:
        self._image, self.root = folder / "disk.img", folder / "disk"
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(megabytes << 20)
        options = {"ext4": ("-m", "0"), "btrfs": ("-d", "single")}[kind]
        _run(f"mkfs.{kind}", "-q", *options, str(self._image))

    def mount(self, *, commit_seconds: int = 5) -> None:
        """Names that nobody syncs are on the disk so much later; OSError where it isn't allowed."""
        options = f"loop,commit={commit_seconds}"
        _run("mount", "-o", options, str(self._image), str(self.root))

    def cut_power(self) -> None:
        """Keep nothing but what the disk has: every call fails from now on, caches are lost."""
        handle = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def damage(self, contents: bytes) -> None:
        """Change every block with these bytes; while it is not mounted.

        A btrfs, which has checksums of its own, can't read that block then, as a disk can't read
        a bad sector.
        """
        with self._image.open("r+b") as image, mmap.mmap(image.fileno(), 0) as raw:
            while (position := raw.find(contents)) >= 0:
                raw[position : position + 1] = bytes([contents[0] ^ 1])

    def unmount(self, *, lazy: bool = False) -> None:
        """Let go of it; what the power cut left in memory is forgotten.

        OSError while somebody has a file open; `lazy` does it when the last one is closed.
        """
        _run("umount", *(["-l"] if lazy else []), str(self.root))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
