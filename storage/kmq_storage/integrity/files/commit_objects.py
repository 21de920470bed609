"""Checks of the commits in a bucket: each is a valid object and follows its predecessor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.entries import decode_entries
from kmq_storage.format.frame import FrameHeader, InvalidFrameError, read_directory
from kmq_storage.integrity.files.frames import check_frame
from kmq_storage.integrity.report import Damage, Finding
from kmq_storage.integrity.second_looks import found_twice
from kmq_storage.log.bucket.collected import collected_lsn
from kmq_storage.log.bucket.commit_objects import CommitObjects, follows, proven_header
from kmq_storage.log.proven_reads import proven
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.read_cache import RemoteContents

Contents: TypeAlias = pa.Buffer | RemoteContents

#: The most commits that may come while a writer sleeps that does not look before it writes.
_SLEPT_MAX = 1_000


def check_objects(
    files: BucketFiles, seed: int, state: StoreState, *, deep: bool
) -> Iterator[Finding]:
    """Damage in the commits up to the last one of a state.

    Each commit is requested. A listing is used only to find where to begin, as it may lag behind.
    """
    last = state.lsn if state.broken is None else max(state.lsn, state.broken.last_lsn)
    before: FrameHeader | None = None
    missing: list[int] = []
    gone, behind = unmarked(files, state)
    if gone:
        yield _missing(gone, behind - 1)
    first = _first_listed(files, last)
    if state.broken is not None:
        first = min(first, state.broken.first_lsn)
    for lsn in range(first, last + 1):
        file, look = paths.log_file(lsn), partial(_look_at, files, lsn, before, seed)
        try:
            before = proven(files, file, look)[0]
            if deep:
                yield from found_twice(files, file, partial(_wrong_inside, look, state))
        except FileNotFoundError:
            before = None
            missing.append(lsn)
        except InvalidFrameError as error:
            before = None
            yield Damage(paths.commit_object(lsn), reason=f"commit {lsn}: {error}")
    collected = collected_lsn(files) if missing else 0  # they may have been collected meanwhile
    for begin, end in _runs(lsn for lsn in missing if lsn > collected):
        yield _missing(begin, end)


def _look_at(
    files: BucketFiles, lsn: int, before: FrameHeader | None, seed: int
) -> tuple[FrameHeader, bytes, Contents]:
    """The header, the directory and all bytes of the commit after `before`.

    InvalidFrameError when it is damaged, or another commit.
    """
    contents = files.map(paths.log_file(lsn))
    header = proven_header(contents, lsn, seed)
    if not follows(header, before.chain if before is not None else None):
        raise InvalidFrameError("the commit does not follow its predecessor")
    return header, read_directory(contents, 0, header), contents


def _wrong_inside(
    look: Callable[[], tuple[FrameHeader, bytes, Contents]], state: StoreState
) -> Iterator[Damage]:
    header, directory, contents = look()
    file, entries = paths.commit_object(header.lsn), list(decode_entries(directory))
    return check_frame(contents.slice(0, header.length), header, entries, file, state)


def _missing(first: int, last: int) -> Damage:
    reason = f"commits {first} to {last}: objects are missing"
    return Damage(paths.commit_object(first), reason=reason)


def _first_listed(files: BucketFiles, last: int) -> int:
    """The first listed commit that is not marked as collected."""
    first = collected_lsn(files) + 1
    listed = (paths.try_commit_lsn(found.path) for found in files.walk(paths.LOG_FOLDER))
    return next((lsn for lsn in listed if lsn is not None and first <= lsn), last + 1)


def unmarked(files: BucketFiles, state: StoreState) -> tuple[int, int]:
    """The range [first, behind) of the oldest commits that are missing without a mark.

    None of them is needed, as the state begins at a checkpoint behind them. (0, 0) if none are
    missing.
    """
    behind = min(_first_listed(files, state.lsn), state.checkpoint_lsn + 1)
    first = collected_lsn(files) + 1
    if first >= behind or files.exists(paths.commit_object(behind - 1)):
        return 0, 0
    return first, behind


def take_missing(files: BucketFiles, seed: int, state: StoreState) -> None:
    """Occupy the names of missing commits that were not collected by invalid objects.

    A writer that slept could otherwise create such a name, and no reader would read it.
    Of the missing commits before all existing ones, only the last are occupied: a writer that slept
    longer looks before it writes.
    """
    objects = CommitObjects(files, seed)
    first = max(collected_lsn(files) + 1, _first_listed(files, state.lsn) - _SLEPT_MAX)
    for lsn in range(first, state.lsn + 1):
        if not objects.exists(lsn):
            objects.block(lsn)


def _runs(lsns: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and last number of each run of consecutive numbers."""
    for _, run in groupby(enumerate(lsns), key=lambda each: each[1] - each[0]):
        (_, first), *rest = run
        yield first, rest[-1][1] if rest else first
