"""Spark's plan of a micro-batch, made durable before the batch is stored: Spark syncs nothing.

A stored batch is known by its query and its number. If a power cut took its plan, or the query's
id, other records would be planned under that number, and be taken for a replay.
"""

from __future__ import annotations

import os

from kmq_storage.objects.file_io import sync_file_system


def sync_checkpoint(location: str) -> None:
    """Return when everything that a checkpoint has so far survives a power cut.

    A checkpoint outside local folders (in HDFS, or in a bucket) needs nothing.
    """
    folder = location.removeprefix("file://").removeprefix("file:")
    if os.path.isdir(folder):
        sync_file_system(folder)
