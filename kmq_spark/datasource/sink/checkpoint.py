"""Spark's plan of a micro-batch, on disk before the batch is stored: Spark itself syncs nothing.

A stored batch is known by its query and its number. Should a power cut take the plan of it, or the
query's id, other records would be planned under that number, and pass for a replay.
"""

from __future__ import annotations

import os

from kmq_storage.objects.file_io import sync_file_system


def sync_checkpoint(location: str) -> None:
    """Return when all that a checkpoint has so far survives a power cut.

    One that is not in a folder here (but in HDFS, or a bucket) needs nothing.
    """
    folder = location.removeprefix("file://").removeprefix("file:")
    if os.path.isdir(folder):
        sync_file_system(folder)
