"""`kmq.json`: the identity of a store and the version of its format."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.json_bytes import members_checksum


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """What the creation of a store found out about its bucket, by racing for names."""

    #: Why several writers can't share the store; empty when they can.
    one_writer: str
    #: Whether the bucket supports conditional uploads, which create a name only if it is new.
    conditional: bool
    #: For each race: the number of names, of writers, and of bytes of a body.
    races: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """The id of a store and the size of its log files in bytes; both never change."""

    store_id: uuid.UUID
    log_file_bytes: int = limits.LOG_FILE_BYTES
    #: What the creation of the store found out about the bucket; None for a store on a disk.
    bucket: BucketFacts | None = None
    #: The prefixes of the same bucket whose staged files and segments this clone uses too.
    origins: tuple[str, ...] = ()
    #: Whether the store is a clone that refuses writes.
    read_only: bool = False

    @property
    def seed(self) -> int:
        """The seed of the checksums of frame headers."""
        return checksum(self.store_id.bytes)


def encode_identity(identity: Identity) -> bytes:
    """The JSON of kmq.json, with a checksum over all other members."""
    special = identity.origins or identity.read_only
    body: dict[str, object] = {
        "format": limits.CLONE_FORMAT_VERSION if special else limits.FORMAT_VERSION,
        "store_id": str(identity.store_id),
        "log_file_bytes": identity.log_file_bytes,
    }
    if identity.bucket is not None:
        body["bucket"] = asdict(identity.bucket)
    if identity.origins:
        body["origins"] = list(identity.origins)
    if identity.read_only:
        body["read_only"] = True
    return json.dumps(body | {"crc32c": members_checksum(body)}, indent=2).encode() + b"\n"


def decode_identity(raw: bytes, url: str) -> Identity:
    """The identity of a store, after its version and checksum were checked.

    FormatVersionError for a store of a newer kmq; CorruptionError when bytes changed, also those of
    the version.
    """
    try:
        body = json.loads(raw)
        version = body["format"]
        if type(version) is not int:
            raise TypeError(f"format is a number, not {version!r}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(url, "it is no JSON of a kmq store") from error
    said = body.pop("crc32c", None)
    is_whole = said == members_checksum(body)
    if version > limits.CLONE_FORMAT_VERSION and (is_whole or said is None):
        raise FormatVersionError(
            f"store {url} has format {version}; this kmq reads up to "
            f"{limits.CLONE_FORMAT_VERSION}: install a newer kmq",
            url=url,
            version=version,
        )
    if not is_whole:
        raise _damaged(url, "its checksum does not match")
    facts = body.get("bucket")
    return Identity(
        uuid.UUID(body["store_id"]),
        body["log_file_bytes"],
        _bucket_facts(facts) if facts else None,
        tuple(body.get("origins", ())),
        body.get("read_only", False),
    )


def _damaged(url: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"kmq.json in {url} is damaged: {why}; put the file back from a copy of the store, as its "
        "id is in no other file",
        file=paths.STORE_FILE,
    )


def _bucket_facts(facts: dict[str, Any]) -> BucketFacts:
    races = tuple((names, writers, size) for names, writers, size in facts["races"])
    return BucketFacts(facts["one_writer"], facts["conditional"], races)
