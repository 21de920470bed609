"""`kmq.json`, the hint page, pins and locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.integrity.restoring import differs
from kmq_storage.log.hint import Hint
from kmq_storage.maintenance.clones import decode_clone
from kmq_storage.maintenance.pins import pins
from kmq_storage.objects.files import Files
from kmq_storage.objects.lease import decode_lease


def check_identity(files: Files) -> Iterator[Finding]:
    """What is wrong with `kmq.json`."""
    try:
        changed = differs(files)
    except FileNotFoundError:
        yield Damage(paths.STORE_FILE, reason="file is missing; put it back from a copy")
    except CorruptionError as error:
        yield Damage(paths.STORE_FILE, reason=error.message)
    else:
        if changed:
            yield Damage(paths.STORE_FILE, reason="it says what it should in other bytes")


def check_hint(hint: Hint) -> Iterator[Finding]:
    """Whether the hint page says nothing; that does no harm."""
    if not hint.valid:
        yield Note(paths.HINT, "is of an earlier start of the machine, or damaged; it is made anew")


def check_pins(files: Files) -> Iterator[Finding]:
    """Which pins hold nothing, since nobody can read them."""
    for file in unreadable_pins(files):
        yield Damage(file, reason="the pin can't be read; it keeps no files")


def check_clones(files: Files) -> Iterator[Finding]:
    """Which records of clones can't be read: nothing is collected beside them."""
    for file in files.walk(paths.CLONE_FOLDER):
        if paths.try_clone(file.path) is None:
            continue  # nobody takes it for one
        try:
            decode_clone(pa.py_buffer(files.read(file.path)), file.path)
        except CorruptionError as error:
            yield Damage(file.path, reason=error.message)


def unreadable_pins(files: Files) -> Iterator[str]:
    """The files of pins that are not as they were written."""
    return (file for file, pin in pins(files) if pin is None)


def check_locks(files: Files) -> Iterator[Finding]:
    """Which locks are not as they were written; they only tell who works, so it does no harm."""
    for file in files.walk(paths.LOCK_FOLDER):
        if paths.try_epoch(file.path) is not None:
            with suppress(FileNotFoundError):  # the next epoch began
                if decode_lease(files.read(file.path)) is None:
                    yield Note(file.path, "damaged lease, harmless: replaced at its next use")
        elif file.length:
            yield Note(file.path, "a lock has no contents; nobody reads them")
