"""Staged files that lost commits may have named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.manifest import Key
from kmq_storage.integrity.second_looks import whole_file
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.references import references_of
from kmq_storage.objects.files import Files


def unnamed_rows(files: Files, state: StoreState) -> dict[Key, int]:
    """The number of records of each partition in staged files that a state doesn't refer to."""
    rows: dict[Key, int] = {}
    known = references_of(files, state)
    for file in files.walk(paths.STAGED_FOLDER):
        file_id = paths.try_file_id(file.path)
        if file_id is not None and not known.has(file_id):
            for topic, number, count in records_of(files, file.path):
                found = state.find_topic(topic)
                if found is not None:
                    key = (found.id, number)
                    rows[key] = rows.get(key, 0) + count
    return rows


def records_of(files: Files, file: str) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and number of records of a staged file; empty when it can't be read."""
    contents = whole_file(files, file)
    if contents is None:
        return
    with suppress(pa.ArrowException, OSError, KeyError, ValueError, TypeError):
        reader = pa.ipc.open_file(contents)
        says = reader.schema.metadata
        rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
        yield says[b"kmq.topic"].decode(), int(says[b"kmq.partition"]), rows
