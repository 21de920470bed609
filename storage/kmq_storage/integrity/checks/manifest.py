"""Checks the checkpoints and the pages of the manifest."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import PageRef, decode_page
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_refs
from kmq_storage.log.proven_reads import proven
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in


def check_manifest(files: Files) -> Iterator[Finding]:
    """The damage of checkpoints, the newest first, and of the pages that they name."""
    looked_at: set[bytes] = set()
    newest: tuple[int, bytes] | None = None
    for lsn, digest in checkpoints(files):
        try:
            refs = read_refs(files, lsn, digest)
        except FileNotFoundError:
            continue  # collected meanwhile
        except CorruptionError as error:
            yield Damage(paths.checkpoint_file(lsn, digest), reason=error.message)
            continue
        newest = newest or (lsn, digest)
        for ref in refs:
            if ref.page_id not in looked_at:
                looked_at.add(ref.page_id)
                yield from _check_page(files, ref, newest if newest == (lsn, digest) else None)


def _check_page(
    files: Files, ref: PageRef, needed_by: tuple[int, bytes] | None
) -> Iterator[Finding]:
    file = paths.page_file(ref.page_id)
    try:
        page = proven(files, file, lambda: decode_page(brought_in(files.map(file)), ref))
    except FileNotFoundError:
        if needed_by in checkpoints(files):
            yield Damage(file, reason="file is missing; the newest checkpoint names it")
        else:
            yield Note(file, "is missing; only a checkpoint that is being collected names it")
    except CorruptionError as error:
        yield Damage(file, reason=error.message)
    else:
        if sum(behind - first for first, behind in page.spans.values()) != ref.rows:
            yield Damage(file, reason="it has another number of rows than its checkpoint says")
