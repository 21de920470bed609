"""The batches of an archive in Parquet: a folder each, which counts when it is marked as whole.

The mark is our own: whether Spark leaves one depends on the session's settings and its committer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from posixpath import basename

from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import ArchiveRecord
from kmq_storage.errors import IllegalStateError

#: Our mark, and Spark's, which older archives have instead. Readers of tables don't see either.
_MARK, _MARKS = "_kmq_complete", {"_kmq_complete", "_SUCCESS"}


def batch_folder(record: ArchiveRecord, number: int) -> str:
    """Return the name of a batch's folder; a repeated attempt has the same one."""
    return f"batch={record.checkpoint[:8]}-{number:010d}"


def finish_batch(place: ArchivePlace, folder: str, is_empty: Callable[[], bool]) -> None:
    """Mark a batch as whole; IllegalStateError when readers would not find it."""
    place.folder(folder).publish(_MARK, [folder.encode()], sync=True)
    system, root = place.file_system()
    found = system.find(f"{root}/{folder}")
    if not _is_whole(found) or not (_parquet(found) or is_empty()):
        raise IllegalStateError(
            f"archive {place.url}: {folder} was written, but isn't found where it is read; "
            "have Spark and kmq write to one place (a URL with its scheme says which)"
        )


def is_finished(place: ArchivePlace, folder: str) -> bool:
    """Whether a batch is marked as whole."""
    return place.folder(folder).exists(_MARK)


def whole_batches(place: ArchivePlace) -> list[str]:
    """Return the Parquet files of all batches, below the archive, oldest batch first.

    IllegalStateError when there are none, or when a batch is missing or isn't whole that others
    follow: the job begins a batch only when the one before it is written to its end. The first ones
    may be gone.
    """
    system, root = place.file_system()
    folders = sorted(
        name.rstrip("/") for name in system.ls(root, detail=False) if _is_batch(name.rstrip("/"))
    )
    found = [system.find(folder) for folder in folders]
    if not any(map(_is_whole, found)):
        raise no_files(place)
    for folder, names in zip(folders[:-1], found, strict=False):
        if not _is_whole(names):
            raise IllegalStateError(
                f"archive {place.url}: {folder.rpartition('/')[2]} isn't whole (it has no "
                f"{_MARK}), but later batches are there; bring back what it had, or read "
                "without archive"
            )
    for folder, after in pairwise(map(basename, folders)):
        begin, number = folder.rsplit("-", 1)
        wanted = f"{begin}-{int(number) + 1:010d}"
        if after.startswith(begin) and after != wanted:
            raise IllegalStateError(
                f"archive {place.url}: {wanted} is missing, but later batches are there; bring it "
                "back, or read without archive"
            )
    whole = [name for names in found if _is_whole(names) for name in _parquet(names)]
    return [name.removeprefix(f"{root}/") for name in whole]


def no_files(place: ArchivePlace) -> IllegalStateError:
    """Return the error for an archive whose records' files are gone."""
    return IllegalStateError(
        f"archive {place.url} has none of the records that its group says are archived (no whole "
        "batch, no table); bring back its files, or read without archive"
    )


def _is_batch(path: str) -> bool:
    return path.rpartition("/")[2].startswith("batch=")


def _is_whole(names: Sequence[str]) -> bool:
    return any(name.rpartition("/")[2] in _MARKS for name in names)


def _parquet(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith(".parquet")]
