"""File systems whose locks and links can't be trusted: a store there is refused at once.

The log on a disk needs `flock` that keeps all writers apart, hard links that one of several
wins, and maps that show what others write. Network file systems promise these per host at best,
and FUSE whatever its program does. On overlayfs (containers) all three work.
"""

from __future__ import annotations

import os
from pathlib import Path

from kmq_storage.errors import InvalidRequestError

_MOUNTS = Path("/proc/self/mountinfo")
#: As the kernel names them; FUSE file systems are `fuse` or `fuse.` and the program's name.
_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ncpfs", "coda", "vboxsf"),
        *("ceph", "lustre", "gfs2", "ocfs2", "beegfs", "gpfs", "virtiofs", "prl_fs"),
    )
)


def check_file_system(folder: Path) -> None:
    """InvalidRequestError when a store in this folder could lose commits."""
    try:
        mounts = _MOUNTS.read_text()
    except OSError:
        return  # no Linux, or nothing to see: there is no way to tell
    kind = file_system_of(os.path.realpath(folder), mounts)
    if is_unfit(kind):
        raise InvalidRequestError(
            f"store {folder} is on {kind}, where locks and links don't keep writers on several "
            "hosts apart; use a folder on a local disk, or a bucket (s3://...) for many hosts",
            url=str(folder),
            file_system=kind,
        )


def is_unfit(kind: str) -> bool:
    """Whether a file system of this kind can't hold a store."""
    return kind in _NETWORK or kind == "fuse" or kind.startswith("fuse.")


def file_system_of(path: str, mounts: str) -> str:
    """The kind of file system a path is on, by the text of /proc/self/mountinfo; else empty.

    Of several mounts at one place the last one is seen.
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
    """Spaces and the like are written in octal there."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
