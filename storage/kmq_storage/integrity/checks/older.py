"""Files that only checkpoints refer to, which long readers may still use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import LOG, Key, Row
from kmq_storage.integrity.checks.rows import MISSING, by_file, check_file
from kmq_storage.integrity.report import Damage, Finding
from kmq_storage.log.checkpoints.checkpoint import Checkpoint, checkpoints, read_checkpoint
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.references import References
from kmq_storage.objects.files import Files

#: Folders of files with records, besides the log.
_OF_RECORDS = (f"{paths.SEGMENT_FOLDER}/", f"{paths.STAGED_FOLDER}/")


def check_older(files: Files, state: StoreState, *, deep: bool) -> Iterator[Finding]:
    """Damage in files in which checkpoints have records, but the state has none.

    This includes the newest checkpoint, whose pages have rows that were replaced since. A missing
    file is no damage: it is being collected.
    """
    try:
        known = _with_records(files, state)
    except (CorruptionError, FileNotFoundError):
        return  # these files are unknown
    for lsn, digest in checkpoints(files):
        try:
            checkpoint = read_checkpoint(files, lsn, digest)
            for finding in _check(files, checkpoint, known, deep=deep):
                if not (isinstance(finding, Damage) and finding.reason == MISSING):
                    yield finding
            known.add_pages(checkpoint.refs)
        except (CorruptionError, FileNotFoundError):
            continue  # collected, or damaged, which another check reports


def nobody_needs(log: CommitLog, damage: Sequence[Damage]) -> bool:
    """Whether all damage is in files that only checkpoints refer to, and there are no pins."""
    if not damage or any(not each.file.startswith(_OF_RECORDS) for each in damage):
        return False
    known = _with_records(log.files, log.refresh())
    ids = [paths.try_file_id(each.file) for each in damage]
    kept = any(True for _ in log.files.walk(paths.PIN_FOLDER))
    return not (kept or any(i is None or known.has(i) for i in ids))


def _with_records(files: Files, state: StoreState) -> References:
    """The files in which a state has records, which other checks cover."""
    known = References(files)
    for topic in list(state.topics.values()):
        for number, part in enumerate(topic.parts):
            rows = topic.index(number).rows(part.start, part.end)
            known.add_ids(row.file for row in rows if row.kind != LOG)
    return known


def _check(
    files: Files, checkpoint: Checkpoint, known: References, *, deep: bool
) -> Iterator[Finding]:
    topics = checkpoint.state(files, indexed=False)
    for key, rows in _unknown(files, checkpoint, known):
        topic = topics.topic_by_id(key[0])
        assert topic is not None, "a checkpoint has the topics of its rows"
        for same in by_file(rows):
            yield from check_file(files, topic, key[1], same, deep=deep)


def _unknown(
    files: Files, checkpoint: Checkpoint, known: References
) -> Iterator[tuple[Key, list[Row]]]:
    manifest = Manifest(files, checkpoint.refs)
    for ref in checkpoint.refs:
        if ref.page_id in known.pages:
            continue
        page = manifest.page(ref)
        if known.has_all(page.file_words()[page.column("kind") != LOG]):
            continue
        for key, span in page.spans.items():
            rows = page.rows(*span)
            yield key, [row for row in rows if row.kind != LOG and not known.has(row.file)]
