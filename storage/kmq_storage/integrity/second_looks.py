"""Reads of a bucket for checks: a file is fetched twice before it counts as damaged.

A server or a proxy may send wrong bytes once: see `log.proven_reads`. A bucket that doesn't answer
is an error of the check, not damage of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from kmq_storage.integrity.report import Finding
from kmq_storage.log.open import is_disk
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in


def found_twice(
    files: Files, file: str, look: Callable[[], Iterable[Finding]]
) -> Iterable[Finding]:
    """The findings of `look`; if it has some and the file can be fetched again, look again."""
    found = list(look())
    return look() if found and files.forget(file) else found


def whole_file(files: Files, file: str) -> pa.Buffer | None:
    """The bytes of a file; None when it is gone, or when a disk can't read it.

    OSError when a bucket doesn't answer.
    """
    try:
        return brought_in(files.map(file).slice())
    except OSError as error:
        if is_disk(files) or isinstance(error, FileNotFoundError):
            return None
        raise
