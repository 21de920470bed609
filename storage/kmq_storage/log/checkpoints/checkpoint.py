"""Checkpoints: the state of the store at one LSN, from which an opened store goes on.

A checkpoint is a root file. It names the leaf pages of the manifest and holds all other state as
JSON.

- **It has durable commits only**, so no crash can take back what it holds. The log goes on where
  it ends.
- **Pages are on disk before the root that names them**, and the root's name contains its digest.
  So an existing root is complete, racing writers do no harm, and a damaged root is detected: a
  reader then uses the one before it.
- **It is published within half of collection's grace time** after its state was read. Later, a
  collector that knows only older roots could have deleted pages that this root keeps. A root with
  missing pages is passed over, too.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.cutting import cut
from kmq_storage.errors import CorruptionError, UnavailableError
from kmq_storage.format.checksum import digest_of
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.json_bytes import compact_json
from kmq_storage.format.manifest import PageRef, decode_refs, encode_page, encode_refs
from kmq_storage.log.checkpoints.paging import repaged
from kmq_storage.log.checkpoints.snapshot import check_known, restored, snapshot
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.proven_reads import proven
from kmq_storage.log.state.queues.snapshot import queues_snapshot, restore_queues, rows_snapshot
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.allocators import give_back
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in

_LOGGER = logging.getLogger(__name__)
#: How often a reader that met damage looks whether it was repaired (seconds).
_LOOK_FOR_REPAIR = 1.0

#: The file of a page, and its contents.
_Page: TypeAlias = tuple[str, pa.Buffer]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A root that was read: the place where the log goes on, and the state up to there."""

    cursor: Cursor
    refs: tuple[PageRef, ...]
    members: dict[str, Any]
    #: State that is too large for JSON: `queues` (see `state.queues.snapshot`) and `uniqs`.
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def state(self, files: Files, *, indexed: bool) -> StoreState:
        """The state at the checkpoint; if `indexed`, it knows where records are.

        FormatVersionError when the checkpoint has features that this version doesn't know.
        """
        check_known(self.members, self.parts)
        state = restored(self.members, Manifest(files, self.refs) if indexed else None)
        queues = self.parts.get("queues", b"")
        restore_queues(state.queues, self.members.get("queues", []), queues)
        if queues:
            give_back()  # what a million rows were read from takes more memory than they do
        state.uniqs.restore(self.parts.get("uniqs", b""))
        state.time = self.cursor.time
        return state


def checkpoints(files: Files) -> list[tuple[int, bytes]]:
    """All checkpoints as (LSN, digest), the newest first."""
    found = map(paths.try_checkpoint, files.list(paths.CHECKPOINT_FOLDER))
    return sorted((each for each in found if each is not None), reverse=True)


def newest_checkpoint(files: Files) -> Checkpoint | None:
    """The newest valid checkpoint with all its pages, or without some, or None.

    Pages may be missing when writing the checkpoint took longer than the grace time of collection.
    """
    newest = None
    for lsn, digest in checkpoints(files):
        try:
            found = read_checkpoint(files, lsn, digest)
        except FileNotFoundError:
            continue  # collected since the listing
        except CorruptionError as error:
            _LOGGER.warning("%s; going on from the one before it", error)
            continue
        if has_pages(files, found.refs):
            return found
        _LOGGER.warning("checkpoint %d misses pages; going on from the one before it", lsn)
        newest = newest or found
    return newest


def reaches(files: Files, lsn: int) -> bool:
    """Whether there is a valid checkpoint at or after this LSN with all its pages."""
    for root in checkpoints(files):
        if root[0] < lsn:
            return False
        with suppress(CorruptionError, FileNotFoundError):
            if has_pages(files, read_refs(files, *root)):
                return True
    return False


def has_pages(files: Files, refs: Iterable[PageRef], listed: set[str] | None = None) -> bool:
    """Whether every page that a checkpoint names exists; `listed`: pages that were just seen."""
    wanted = {paths.page_file(ref.page_id) for ref in refs}
    there = listed_pages(files) if listed is None else listed
    return all(map(files.exists, wanted - there))  # a bucket's listing may lag behind


def listed_pages(files: Files) -> set[str]:
    """The paths of all pages, by one listing."""
    return {f"{paths.PAGE_FOLDER}/{name}" for name in files.list(paths.PAGE_FOLDER)}


def starting_point(files: Files, journal: Journal) -> Checkpoint | None:
    """The checkpoint to begin at, or None to begin at the first commit.

    CorruptionError when commits between the checkpoint and the log's first file are missing.
    """
    found = newest_checkpoint(files)
    while journal.folder.first_lsn() > (found.cursor.lsn if found else 0) + 1:
        # Meanwhile a newer one may have been written, and the log before it collected.
        newer = newest_checkpoint(files)
        if newer == found:
            missing = found.cursor.lsn + 1 if found else 1
            raise CorruptionError(
                f"commit {missing} of store {files.url} is in no log file, and no checkpoint of a "
                "later one can be read; put log files or checkpoints back from a copy",
                file=paths.log_file(missing),
                lsn=missing,
            )
        found = newer
    return found


def finds_newer(files: Files, state: StoreState, now: float) -> bool:
    """Whether a look for a newer checkpoint than the one the state began at is due and finds one.

    `now` is a monotonic time in seconds. The next look is due some time after this one.
    """
    if not _is_look_due(state, now):
        return False
    state.rebase_at = state.lsn + limits.REBASE_COMMITS
    state.rebase_time = now + limits.REBASE_SECONDS
    newest = checkpoints(files)[:1]
    return bool(newest) and newest[0][0] > state.checkpoint_lsn


def _is_look_due(state: StoreState, now: float) -> bool:
    """Whether many commits or some time passed since the last look.

    The time counts because collection may delete the state's manifest pages some time after a newer
    checkpoint is published. A look is due much sooner when the state met damage: a repair writes a
    checkpoint behind the damage.
    """
    is_damaged = bool(state.damage) or state.broken is not None
    earlier = limits.REBASE_SECONDS - _LOOK_FOR_REPAIR if is_damaged else 0
    return state.lsn >= state.rebase_at or now >= state.rebase_time - earlier


def read_checkpoint(files: Files, lsn: int, digest: bytes) -> Checkpoint:
    """Read a checkpoint; CorruptionError when its bytes don't match the digest."""
    file = paths.checkpoint_file(lsn, digest)
    refs, raw, parts = decode_refs(proven(files, file, lambda: _proven_root(files, file, digest)))
    members = json.loads(raw)
    return Checkpoint(Cursor(**members.pop("cursor")), tuple(refs), members, parts)


def read_refs(files: Files, lsn: int, digest: bytes) -> list[PageRef]:
    """Read only the references to pages of a checkpoint."""
    file = paths.checkpoint_file(lsn, digest)
    return decode_refs(proven(files, file, lambda: _proven_root(files, file, digest)))[0]


def _proven_root(files: Files, file: str, digest: bytes) -> pa.Buffer:
    contents = brought_in(files.map(file))
    if digest_of(contents) != digest:
        raise CorruptionError(f"checkpoint {file} is damaged", file=file)
    return contents


def write_checkpoint(
    files: Files,
    state: StoreState,
    cursor: Cursor,
    new_uuid: Callable[[], uuid.UUID],
    *,
    began: int,
) -> int:
    """Write a checkpoint of a reader's durable state; returns the number of new pages.

    `began` is when the state was read, by the store's clock (UTC us). UnavailableError when that
    is too long ago; see `publish_root`.
    """
    root, pages = write_pages(files, state, cursor, new_uuid)
    publish_root(files, state.lsn, root, began=began)
    return pages


def write_pages(
    files: Files, state: StoreState, cursor: Cursor, new_uuid: Callable[[], uuid.UUID]
) -> tuple[pa.Buffer, int]:
    """Write the new pages of a checkpoint of a reader's durable state.

    Returns the root that names them, which is not written yet, and the number of new pages.
    """
    assert cursor.lsn == state.lsn, "the log goes on where the state ends"
    refs: list[PageRef] = []
    written = 0
    for some in cut(_new_pages(state, new_uuid, refs), _weight, limits.WRITE_BYTES):
        files.stage_together([(file, [contents]) for file, contents in some])
        written += len(some)
    place = {name: getattr(cursor, name) for name in Cursor.__slots__}
    members = snapshot(state) | {"cursor": place}
    parts: dict[str, bytes] = {}
    if state.queues:
        members["queues"] = queues_snapshot(state.queues)
        parts["queues"] = rows_snapshot(state.queues)
        give_back()  # before as much is taken for the root
    for topic in state.topics.values():  # the own state of this checkpoint
        state.uniqs.expire(topic.id, state.time, topic.settings.uniq_window)
    if state.uniqs:
        parts["uniqs"] = state.uniqs.snapshot()
    return encode_refs(refs, compact_json(members), parts), written


def _new_pages(
    state: StoreState, new_uuid: Callable[[], uuid.UUID], refs: list[PageRef]
) -> Iterator[_Page]:
    """Encode the new pages of a checkpoint; `refs` gets references to all pages."""
    assert state.manifest is not None, "a reader's state has a manifest"
    for page in repaged(state.manifest, state):
        if isinstance(page, PageRef):
            refs.append(page)
            continue
        contents, ref = encode_page(page, new_file_id(new_uuid(), state.lsn))
        refs.append(ref)
        yield paths.page_file(ref.page_id), contents


def _weight(page: _Page) -> int:
    """The bytes of a page, but at least enough to limit how many files are open at once."""
    size: int = page[1].size
    return max(size, limits.WRITE_BYTES // limits.STAGED_TOGETHER)


def publish_root(files: Files, lsn: int, root: pa.Buffer, *, began: int) -> None:
    """Publish the root of a checkpoint whose pages are on disk.

    `began` is when its state was read, by the store's clock (UTC us). UnavailableError when that is
    so long ago that pages which the root keeps may have been collected.
    """
    if files.now() - began > limits.COLLECT_GRACE * 1e6 / 2:
        raise UnavailableError(
            f"the checkpoint of store {files.url} took so long that pages it keeps may have "
            "been collected; nothing was written, try again",
            url=files.url,
        )
    files.publish(paths.checkpoint_file(lsn, digest_of(root)), [root], sync=True)
