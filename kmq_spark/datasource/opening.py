"""Opening the commit log of a store in Spark's worker processes.

Spark plans, commits and looks up schemas in workers that it uses again and again. Each keeps
the logs it opened, so that a micro-batch doesn't replay a log from its beginning.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, NamedTuple

from kmq_spark.datasource.store_url import storage_options
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.open import open_commit_log, open_place


class _Opened(NamedTuple):
    log: CommitLog
    #: See `_made`.
    made: tuple[int, ...]


#: The opened logs, by URL, options of the client, and whether they are read-only.
_opened: dict[tuple[str, tuple[tuple[str, Any], ...], bool], _Opened] = {}


def open_log(url: str, *, read_only: bool) -> CommitLog:
    """The commit log of a store that exists; NotFoundError when there is none."""
    options = storage_options(url)
    files, identity = open_place(url, read_only=read_only, storage_options=options)
    key = (files.url, tuple(sorted(options.items())), read_only)
    known, made = _opened.get(key), _made(files.url)
    if known is not None and (known.log.identity, known.made) == (identity, made):
        return known.log
    if known is not None and known.log.identity != identity:
        known.log.close()  # the folder was deleted and holds another store now
    log = open_commit_log(files, identity, SYSTEM)
    _opened[key] = _Opened(log, made)
    return log


def _made(url: str) -> tuple[int, ...]:
    """Return facts on the store's own file, which change when a backup takes the store's place.

    They may also change otherwise (a hard link to the file does it). So the log that was open stays
    open: it may be in use. A bucket has no such facts.
    """
    with suppress(OSError):
        facts = os.stat(os.path.join(url, paths.STORE_FILE))
        return facts.st_dev, facts.st_ino, facts.st_ctime_ns
    return ()
