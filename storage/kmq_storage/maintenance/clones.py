"""Records of clones in a bucket, which make a store keep the files that its clones read.

A clone's record names all these files, so nothing of the clone itself has to be read. The record
stays until there is no store, or another one, in the clone's place.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, KmqError
from kmq_storage.format.checksum import digest_of
from kmq_storage.format.identity import decode_identity
from kmq_storage.format.manifest import arrow_file
from kmq_storage.format.written_by import check_metadata
from kmq_storage.objects.branch_bucket import BranchBucket
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Files, FoundFile

_FILE_ID = pa.field("file_id", pa.binary(16))


@dataclass(frozen=True, slots=True)
class CloneRecord:
    """The files that one clone shares with the stores it came from."""

    store_id: uuid.UUID
    #: Where the clone is, inside the same bucket.
    prefix: str
    #: The commit of the source that it was made at.
    lsn: int
    #: The ids of staged files and segments.
    file_ids: tuple[bytes, ...]


def encode_clone(record: CloneRecord) -> tuple[str, pa.Buffer]:
    """The name and the bytes of a record."""
    facts = {"store_id": str(record.store_id), "prefix": record.prefix, "lsn": record.lsn}
    schema = pa.schema([_FILE_ID]).with_metadata(
        {"kmq.format": str(limits.FORMAT_VERSION), "kmq.clone": json.dumps(facts, sort_keys=True)}
    )
    ids = pa.array(record.file_ids, _FILE_ID.type)
    contents = arrow_file(pa.RecordBatch.from_arrays([ids], schema=schema))
    return paths.clone_file(record.store_id.bytes, digest_of(contents)), contents


def decode_clone(contents: pa.Buffer, file: str) -> CloneRecord:
    """The record in a file; CorruptionError when it is damaged, or a newer kmq wrote it."""
    named = paths.try_clone(file)
    if named is None or digest_of(contents) != named[1]:
        raise CorruptionError(
            f"{file} is damaged: nobody knows which files a clone needs, so none is collected; "
            "delete it when there is no such clone any more, or when `kmq copy` made it whole",
            file=file,
        )
    reader = pa.ipc.open_file(contents)
    check_metadata(reader.schema.metadata, file)
    facts = json.loads(reader.schema.metadata[b"kmq.clone"])
    return CloneRecord(
        uuid.UUID(facts["store_id"]),
        facts["prefix"],
        facts["lsn"],
        tuple(reader.get_batch(0).column(0).to_pylist()),
    )


def clone_records(files: Files) -> Iterator[tuple[FoundFile, CloneRecord]]:
    """All records of a store's clones."""
    for file in files.walk(paths.CLONE_FOLDER):
        if paths.try_clone(file.path) is not None:
            yield file, decode_clone(pa.py_buffer(files.read(file.path)), file.path)


def shared_files(files: Files, store_id: uuid.UUID, folder: str) -> Iterator[FoundFile]:
    """The files of other stores that a clone reads, by the records that these stores have of it."""
    shared = _shared_ids(files, store_id)
    return (file for file in files.walk_shared(folder) if paths.try_file_id(file.path) in shared)


def _shared_ids(files: Files, store_id: uuid.UUID) -> set[bytes]:
    bucket = files.bucket if isinstance(files, BucketFiles) else None
    ids: set[bytes] = set()
    for origin in bucket.origins if isinstance(bucket, BranchBucket) else ():
        for found in origin.list(paths.CLONE_FOLDER):
            named = paths.try_clone(found.path)
            if named is not None and named[0] == store_id.bytes:
                with suppress(CorruptionError, FileNotFoundError):  # each store has all ids
                    ids.update(decode_clone(origin.get(found.path).data, found.path).file_ids)
    return ids


def kept_for_clones(
    files: Files, before: int, forget: Callable[[str, int], None]
) -> Iterator[Iterable[bytes]]:
    """The ids of files that clones need; tells of records of clones that are gone.

    One that was made at or after `before` (UTC us) counts: its clone may not be finished yet.
    """
    for file, record in clone_records(files):
        if file.modified < before and _is_gone(files, record):
            forget(file.path, file.length)
        else:
            yield record.file_ids


def _is_gone(files: Files, record: CloneRecord) -> bool:
    """Whether a clone certainly no longer exists; in doubt, it does."""
    if not isinstance(files, BucketFiles):
        return False  # this store was copied from a bucket
    place = files.beside(record.prefix)
    try:
        found = decode_identity(place.read(paths.STORE_FILE), place.url)
    except FileNotFoundError:
        return True
    except (OSError, KmqError):
        return False
    return found.store_id != record.store_id
