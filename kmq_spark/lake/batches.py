"""The batches of an archive in Parquet: a folder each, which counts when it is marked as whole.

The mark is our own: whether Spark leaves one depends on the session's settings and its committer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname

from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import ArchiveRecord
from kmq_storage.errors import IllegalStateError

#: Our mark, and Spark's, which older archives have instead. Readers of tables don't see either.
_MARK, _MARKS = "_kmq_complete", {"_kmq_complete", "_SUCCESS"}
#: Begins the name of the list of a batch's files, which ends with their number.
_LIST = "_kmq_files-"


def batch_folder(record: ArchiveRecord, number: int) -> str:
    """Return the name of a batch's folder; a repeated attempt has the same one."""
    return f"batch={record.checkpoint[:8]}-{number:010d}"


def finish_batch(place: ArchivePlace, folder: str, is_empty: Callable[[], bool]) -> None:
    """Mark a batch as whole; IllegalStateError when readers would not find it."""
    system, root = place.file_system()
    files = [name.removeprefix(f"{root}/") for name in _parquet(system.find(f"{root}/{folder}"))]
    inside = place.folder(folder)
    inside.publish(f"{_LIST}{len(files)}", ["\n".join(files).encode()], sync=True)
    inside.publish(_MARK, [folder.encode()], sync=True)
    found = system.find(f"{root}/{folder}")
    if not _is_whole(found) or not (files or is_empty()):
        raise IllegalStateError(
            f"archive {place.url}: {folder} was written, but isn't found where it is read; "
            "have Spark and kmq write to one place (a URL with its scheme says which)"
        )


def is_finished(place: ArchivePlace, folder: str) -> bool:
    """Whether a batch is marked as whole."""
    return place.folder(folder).exists(_MARK)


@dataclass(frozen=True)
class WholeBatches:
    """What is there of batches that were written to their end, and what is not."""

    #: The Parquet files, below the archive, oldest batch first.
    files: list[str]
    #: Batches, and files of batches, that are gone.
    missing: list[str]


def whole_batches(place: ArchivePlace, last: int = -1) -> WholeBatches:
    """Find the whole batches; IllegalStateError when there are none.

    The job begins a batch only when the one before it is written to its end. `last` is the number
    of the last batch that is known to be. The first ones may be gone: they count as given up, and
    so do the first days of a topic.
    """
    system, root = place.file_system()
    folders = sorted(
        name.rstrip("/") for name in system.ls(root, detail=False) if _is_batch(name.rstrip("/"))
    )
    known = {basename(folder): _below(root, system.find(folder)) for folder in folders}
    if not any(map(_is_whole, known.values())):
        raise no_files(place)
    whole = {name: _parquet(names) for name, names in known.items() if _is_whole(names)}
    files = [file for names in whole.values() for file in names]
    missing = [name for name in _finished([*known], last) if name not in whole]
    lost = [
        file for name in whole for file in _listed(place, known[name]) if file not in whole[name]
    ]
    return WholeBatches(files, missing + _not_given_up(lost, files))


def _below(root: str, names: Sequence[str]) -> list[str]:
    return [name.removeprefix(f"{root}/") for name in names]


def _finished(folders: Sequence[str], last: int) -> list[str]:
    """The folders that whole batches have, from the first that is there: not the newest's."""
    begin, first = folders[0].rsplit("-", 1)
    end = max(int(folders[-1].rsplit("-", 1)[1]), last + 1)
    return [f"{begin}-{number:010d}" for number in range(int(first), end)]


def _listed(place: ArchivePlace, names: Sequence[str]) -> list[str]:
    """The files that a batch had, if there are fewer by now; the list's name says how many."""
    for name in names:
        count = basename(name).removeprefix(_LIST)
        if count != basename(name) and int(count) > len(_parquet(names)):
            return place.folder(dirname(name)).read(basename(name)).decode().splitlines()
    return []


def _not_given_up(lost: Sequence[str], files: Sequence[str]) -> list[str]:
    """Those lost files that are not of the first days of a topic, nor of one without files."""
    oldest: dict[str, str] = {}
    for topic, day in map(_topic_and_day, files):
        oldest[topic] = min(day, oldest.get(topic, day))
    pairs = ((file, *_topic_and_day(file)) for file in lost)
    return [file for file, topic, day in pairs if topic in oldest and day >= oldest[topic]]


def _topic_and_day(file: str) -> tuple[str, str]:
    """The names of the folders of a file: dates are in the order of their texts."""
    parts = file.split("/")
    return parts[1], parts[-2]


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
