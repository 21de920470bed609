"""Opening the commit log of a store in Spark's worker processes.

Spark plans, commits and looks up schemas in workers that it uses again and again. Each keeps
the logs it opened, so that a micro-batch doesn't replay a log from its beginning.
"""

from __future__ import annotations

from typing import Any

from kmq_spark.datasource.store_url import storage_options
from kmq_storage.environment import SYSTEM
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.open import open_commit_log, open_place

#: The opened logs, by URL, options of the client, and whether they are read-only.
_opened: dict[tuple[str, tuple[tuple[str, Any], ...], bool], CommitLog] = {}


def open_log(url: str, *, read_only: bool) -> CommitLog:
    """The commit log of a store that exists; NotFoundError when there is none."""
    options = storage_options(url)
    files, identity = open_place(url, read_only=read_only, storage_options=options)
    key = (files.url, tuple(sorted(options.items())), read_only)
    known = _opened.get(key)
    if known is not None and known.identity == identity:
        return known
    if known is not None:  # the folder was deleted and holds another store now
        known.close()
    log = _opened[key] = open_commit_log(files, identity, SYSTEM)
    return log
