"""Checks of `kmq.json`, the hint page, pins, clones and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.identity import decode_identity, encode_identity
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.log.files.hint import Hint
from kmq_storage.maintenance.clones import decode_clone
from kmq_storage.maintenance.pins import pins
from kmq_storage.objects.files import Files
from kmq_storage.objects.lease import decode_lease


def check_identity(files: Files) -> Iterator[Finding]:
    """Yield a finding when `kmq.json` is damaged."""
    try:
        changed = identity_differs(files)
    except FileNotFoundError:
        yield Damage(paths.STORE_FILE, reason="file is missing; put it back from a copy")
    except CorruptionError as error:
        yield Damage(paths.STORE_FILE, reason=error.message)
    else:
        if changed:
            yield Damage(paths.STORE_FILE, reason="it says what it should in other bytes")


def identity_differs(files: Files) -> bool:
    """Whether a valid `kmq.json` has other bytes than it should; CorruptionError if invalid."""
    raw = files.read(paths.STORE_FILE)
    return raw != encode_identity(decode_identity(raw, files.url))


def check_hint(hint: Hint) -> Iterator[Finding]:
    """A note if the hint page is invalid, which does no harm."""
    if not hint.valid:
        yield Note(paths.HINT, "is of an earlier start of the machine, or damaged; it is made anew")


def check_pins(files: Files) -> Iterator[Finding]:
    """Damaged pins, which keep no files."""
    for file in unreadable_pins(files):
        yield Damage(file, reason="the pin can't be read; it keeps no files")


def check_clones(files: Files) -> Iterator[Finding]:
    """Damaged records of clones, which stop collection."""
    for file in files.walk(paths.CLONE_FOLDER):
        if paths.try_clone(file.path) is None:
            continue  # another file
        try:
            decode_clone(pa.py_buffer(files.read(file.path)), file.path)
        except CorruptionError as error:
            yield Damage(file.path, reason=error.message)


def unreadable_pins(files: Files) -> Iterator[str]:
    """The files of damaged pins."""
    return (file for file, pin in pins(files) if pin is None)


def check_locks(files: Files) -> Iterator[Finding]:
    """Notes on damaged locks, which do no harm, since they only name their holder."""
    for file in files.walk(paths.LOCK_FOLDER):
        if paths.try_epoch(file.path) is not None:
            with suppress(FileNotFoundError):  # the next epoch began
                if decode_lease(files.read(file.path)) is None:
                    yield Note(file.path, "damaged lease, harmless: replaced at its next use")
        elif file.length:
            yield Note(file.path, "a lock has no contents; nobody reads them")
