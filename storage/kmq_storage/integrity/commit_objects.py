"""The commits of a store in a bucket: an object each, and each follows its predecessor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.entries import decode_entries
from kmq_storage.format.frame import (
    FrameHeader,
    InvalidFrameError,
    decode_header,
    read_directory,
)
from kmq_storage.integrity.frames import check_frame
from kmq_storage.integrity.report import Damage, Finding
from kmq_storage.log.collected import collected_lsn
from kmq_storage.log.commit_objects import follows
from kmq_storage.log.state import StoreState
from kmq_storage.objects.bucket_files import BucketFiles


def check_objects(
    files: BucketFiles, seed: int, state: StoreState, *, deep: bool
) -> Iterator[Finding]:
    """What is wrong with the commits up to the last one of a state."""
    last = state.lsn if state.broken is None else max(state.lsn, state.broken.last_lsn)
    before: FrameHeader | None = None
    expected = 0
    first = collected_lsn(files) + 1  # what stands below may go, and counts no more
    for found in files.walk(paths.LOG_FOLDER):
        lsn = paths.try_commit_lsn(found.path)
        if lsn is None or not first <= lsn <= last:
            continue
        if expected and lsn > expected:
            reason = f"commits {expected} to {lsn - 1}: objects are missing"
            yield Damage(paths.commit_object(expected), reason=reason)
        try:
            contents = files.map(paths.log_file(lsn))
            header, directory = _proven(contents, lsn, before if expected == lsn else None, seed)
            before = header
            if deep:
                raw = contents.slice(0, header.length)
                entries = list(decode_entries(directory))
                yield from check_frame(raw, header, entries, found.path, state)
        except FileNotFoundError:
            continue  # collected meanwhile
        except InvalidFrameError as error:
            before = None
            yield Damage(found.path, reason=f"commit {lsn}: {error}")
        finally:
            expected = lsn + 1
    if 0 < expected <= last:
        reason = f"commits {expected} to {last}: objects are missing"
        yield Damage(paths.commit_object(expected), reason=reason)


def _proven(
    contents: pa.Buffer, lsn: int, before: FrameHeader | None, seed: int
) -> tuple[FrameHeader, bytes]:
    """The header and directory of a commit's object; InvalidFrameError when it is another one."""
    header = decode_header(contents, 0, seed)
    if header.lsn != lsn or header.length != contents.size:
        raise InvalidFrameError("the object holds another commit than its name says")
    if not follows(header, before.chain if before is not None else None):
        raise InvalidFrameError("the commit does not follow its predecessor")
    return header, read_directory(contents, 0, header)
