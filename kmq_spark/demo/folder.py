"""The demo's folder: the demo makes it, puts everything there, and empties it at the next run."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kmq_storage.errors import InvalidRequestError

#: Where the demo runs unless told otherwise.
DEFAULT = "kmq-demo"

_MARK = ".kmq-demo"
_KEPT = (_MARK, "jars")


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths inside the demo's folder."""

    path: Path

    @property
    def store(self) -> str:
        """The kmq store."""
        return str(self.path / "store")

    @property
    def checkpoint(self) -> Path:
        """The streaming query's checkpoint."""
        return self.path / "checkpoint"

    @property
    def archive(self) -> Path:
        """The archived topic."""
        return self.path / "archive"

    @property
    def plot(self) -> Path:
        """The picture."""
        return self.path / "delays.png"

    @property
    def producer_log(self) -> Path:
        """What both producers printed."""
        return self.path / "producer.log"

    @property
    def spark_log(self) -> Path:
        """What Spark printed."""
        return self.path / "spark.log"

    @property
    def jars(self) -> Path:
        """Delta's jars, kept for the next run."""
        return self.path / "jars"


@contextmanager
def clean_folder(name: str | None) -> Iterator[Folder]:
    """An empty folder for this run; what an earlier run left in it is deleted.

    Raises: InvalidRequestError for anything that isn't the demo's own to empty.
    """
    name = name or DEFAULT
    if "://" in name:
        raise InvalidRequestError(f"The demo needs a local folder, not {name}.", store=name)
    path = Path(name).absolute()
    _refuse_strange(path)
    path.mkdir(parents=True, exist_ok=True)
    with (path / _MARK).open("a") as mark:
        try:
            # The kernel frees it when this process ends, however it ends.
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"Another kmq demo runs in {path}; name another folder with --store."
            raise InvalidRequestError(message, store=name) from None
        _empty(path)
        yield Folder(path)


def _refuse_strange(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise InvalidRequestError(f"{path} is a file; name a folder with --store.", store=str(path))
    if any(path.iterdir()) and not (path / _MARK).exists():
        message = f"{path} isn't empty and wasn't made by kmq demo; name another with --store."
        raise InvalidRequestError(message, store=str(path))


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.name in _KEPT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
