"""Files that moved: what a state refers to may be collected while it is looked at.

Whoever meets a missing file looks again, in a state from the newest checkpoint. Only what is
missing there too is damage.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import TypeVar

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state import StoreState

_Result = TypeVar("_Result")


def looking_again(
    log: CommitLog, work: Callable[[StoreState], _Result], state: StoreState | None = None
) -> _Result:
    """Do something with the state, and once more with a newer one when files of it moved.

    The state that there is now, unless one is given to begin with.
    """
    states = chain([log.refresh if state is None else lambda: state], repeat(log.reload))
    return trying_again(lambda: work(next(states)()))


def planning(log: CommitLog, work: Callable[[StoreState], _Result]) -> _Result:
    """As `looking_again`, with a state that no failed sync takes back: plans are committed.

    The LSN of a lost commit is given out again, so a plan on it would look up to date.
    """
    if log.durable:
        return looking_again(log, work)
    return trying_again(lambda: work(log.snapshot()[0]))


def trying_again(work: Callable[[], _Result]) -> _Result:
    """Do something, and once more as long as it is another file that is missing each time.

    Or another page of the manifest that is damaged: a repair may have made it anew.
    """
    missing = None
    while True:
        try:
            return work()
        except CorruptionError as error:
            file = moved_file(error)
            if file == missing:
                raise
            missing = file


def moved_file(error: CorruptionError) -> str | None:
    """The file that a newer state may name no more: one that is missing, or a damaged page."""
    file = str(error.context.get("file", ""))
    return file if file.startswith(f"{paths.PAGE_FOLDER}/") else missing_file(error)


def missing_file(error: CorruptionError) -> str | None:
    """The file that is not there, which may have moved; None when bytes are damaged."""
    return error.context["file"] if error.context.get("missing") else None
