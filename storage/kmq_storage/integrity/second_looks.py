"""What a bucket sends is looked at twice before it counts as damaged, and no answer is no damage.

A server, or what stands before it, may send other bytes once: see `log.proven_reads`.
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
    """What is wrong with a file when it was fetched once more, too."""
    found = list(look())
    return look() if found and files.forget(file) else found


def whole_file(files: Files, file: str) -> pa.Buffer | None:
    """The bytes of a file; None when it is gone, or on a disk that can't read it.

    OSError when a bucket doesn't answer.
    """
    try:
        return brought_in(files.map(file).slice())
    except OSError as error:
        if is_disk(files) or isinstance(error, FileNotFoundError):
            return None
        raise
