"""File systems whose locks and links can't be trusted, so that a store there is refused.

The log on a disk needs `flock` that keeps all writers apart, hard links that one of several
wins, and maps that show what others write. Network file systems promise these per host at best,
and FUSE, also for disks (`fuseblk`), whatever its program does. On overlayfs (containers) all three
work. docs/design/file-systems.md has the table.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kmq_storage.errors import InvalidRequestError

_MOUNTS = Path("/proc/self/mountinfo")
#: Names of network file systems in the kernel.
_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "9p", "ncpfs", "coda", "vboxsf"),
        *("ceph", "lustre", "gfs2", "ocfs2", "beegfs", "gpfs", "virtiofs", "prl_fs", "vmhgfs"),
        *("glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "acfs", "davfs"),
    )
)
#: A file system that is replaced by another mount at the first access.
_MOUNTED_WHEN_USED = "autofs"
_WITHOUT_LINKS = frozenset(("vfat", "msdos", "exfat"))
#: File systems whose contents may be lost sooner than users expect, and why.
_SHORT_LIVED = {
    "overlay": "what is in a container's own layers is gone with the container",
    "tmpfs": "what is in memory is gone when the machine stops",
    "ramfs": "what is in memory is gone when the machine stops",
}


def check_file_system(folder: Path) -> None:
    """InvalidRequestError when a store in this folder could lose commits."""
    kind = kind_at(folder)
    reason = why_unfit(kind)
    if reason:
        raise InvalidRequestError(
            f"store {folder} is on {kind}, {reason}; use a folder on a local disk, or a bucket "
            "(s3://...) for many hosts",
            url=str(folder),
            file_system=kind,
        )


def kind_at(folder: Path) -> str:
    """The kind of file system a folder is on; empty where there is no way to tell."""
    kind = _mounted_at(folder)
    if kind == _MOUNTED_WHEN_USED:
        with suppress(OSError):
            os.stat(f"{folder}/.")
        kind = _mounted_at(folder)
    return kind


def _mounted_at(folder: Path) -> str:
    try:
        mounts = _MOUNTS.read_text()
    except OSError:
        return ""  # not on Linux, or not readable
    return file_system_of(os.path.realpath(folder), mounts)


def why_unfit(kind: str) -> str:
    """Why a file system of this kind can't hold a store; empty when it can."""
    if kind in _NETWORK:
        return "where locks and links don't keep writers on several hosts apart"
    if kind in ("fuse", "fuseblk") or kind.startswith("fuse."):
        return "where locks and links are what a program makes of them"
    if kind == _MOUNTED_WHEN_USED:
        return "which has no files of its own, and nothing was mounted over it"
    if kind in _WITHOUT_LINKS:
        return "which has no hard links, by which a name is created once"
    return ""


def how_short_lived(kind: str) -> str:
    """Why a store there may be gone soon; empty when it stays."""
    return _SHORT_LIVED.get(kind, "")


def file_system_of(path: str, mounts: str) -> str:
    """The kind of file system a path is on, by the text of /proc/self/mountinfo; else empty.

    If there are several mounts at one place, the last one is visible.
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = _unescaped(fields.split(" ")[4]) if fields.count(" ") > 3 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= best:
            best, kind = len(point), rest.partition(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    """The text with octal escapes replaced, which stand for spaces and the like."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
