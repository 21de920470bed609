"""What the figures were measured on and with."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("kmq-spark", "pyarrow", "numpy", "pyspark", "delta-spark", "confluent-kafka")


#: Bytes of memory that are touched to see what that takes.
_TOUCHED = 256 * 1024 * 1024


def describe(folder: Path) -> dict[str, object]:
    """Date, processor, memory, file system of the scratch folder, and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "fresh_page_us": round(1e6 * _fresh_page(), 2),
        "file_system": _file_system(folder),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _file_system(folder: Path) -> str:
    """The type of the mount that holds a folder: the one with the longest matching path."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(mount, kind) for mount, kind in mounts if folder.is_relative_to(mount)]
    return max(holding, key=lambda pair: len(pair[0]))[1]


def _fresh_page() -> float:
    """Seconds that the first touch of a page takes: some 0.5 us, unless a host lends it anew."""
    size, began = mmap.PAGESIZE, time.perf_counter()
    with mmap.mmap(-1, _TOUCHED, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in range(0, _TOUCHED, size):
            memory[page] = 1
    return (time.perf_counter() - began) / (_TOUCHED // size)


def _java() -> str | None:
    try:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return told.stderr.splitlines()[0]
