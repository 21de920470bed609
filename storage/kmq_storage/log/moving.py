"""Retries after files moved: files that a state refers to may be collected while it is used.

A reader that finds a file missing tries again with a state from the newest checkpoint. A file that
this state also misses is damage.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import TypeVar

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState

_Result = TypeVar("_Result")


def looking_again(
    log: CommitLog, work: Callable[[StoreState], _Result], state: StoreState | None = None
) -> _Result:
    """Call `work` with `state`, or a refreshed one, and again with a newer one if files moved."""
    states = chain([log.refresh if state is None else lambda: state], repeat(log.reload))
    return trying_again(lambda: work(next(states)()))


def planning(log: CommitLog, work: Callable[[StoreState], _Result]) -> _Result:
    """As `looking_again`, with a durable state, for work that commits a plan.

    The LSN of a commit lost by a failed sync is given out again. A plan made on the lost commit
    would then look up to date.
    """
    if log.durable:
        return looking_again(log, work)
    return trying_again(lambda: work(log.snapshot()[0]))


def trying_again(work: Callable[[], _Result]) -> _Result:
    """Call `work` again as long as a different file is missing each time.

    This includes a damaged page of the manifest, which a repair may have replaced.
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
    """The file that a newer state may no longer name: a missing file or a damaged page."""
    file = str(error.context.get("file", ""))
    return file if file.startswith(f"{paths.PAGE_FOLDER}/") else missing_file(error)


def missing_file(error: CorruptionError) -> str | None:
    """The missing file of an error, whose records may have moved; None for damaged bytes."""
    return error.context["file"] if error.context.get("missing") else None
