"""`kmq.json`: which store this is, and which format it has."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.checksum import checksum


@dataclass(frozen=True, slots=True)
class Identity:
    """The id of a store and the size of its log files in bytes; both never change."""

    store_id: uuid.UUID
    log_file_bytes: int = limits.LOG_FILE_BYTES

    @property
    def seed(self) -> int:
        """What the checksums of frame headers start from."""
        return checksum(self.store_id.bytes)


def encode_identity(identity: Identity) -> bytes:
    """The JSON of kmq.json, with a checksum over its other members."""
    body = {
        "format": limits.FORMAT_VERSION,
        "store_id": str(identity.store_id),
        "log_file_bytes": identity.log_file_bytes,
    }
    return json.dumps(body | {"crc32c": _checksum_of(body)}, indent=2).encode() + b"\n"


def decode_identity(raw: bytes, url: str) -> Identity:
    """The identity of a store, once version and checksum are right."""
    try:
        body = json.loads(raw)
        version = body["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(
            f"kmq.json in {url} is damaged, or not of a kmq store", file=paths.STORE_FILE
        ) from error
    if not isinstance(version, int) or version > limits.FORMAT_VERSION:
        raise FormatVersionError(
            f"store {url} has format {version}; this kmq reads up to {limits.FORMAT_VERSION}: "
            "install a newer kmq",
            url=url,
            version=version,
        )
    if body.pop("crc32c", None) != _checksum_of(body):
        raise CorruptionError(
            f"kmq.json in {url} is damaged: its checksum does not match", file=paths.STORE_FILE
        )
    return Identity(uuid.UUID(body["store_id"]), body["log_file_bytes"])


def _checksum_of(body: dict[str, object]) -> int:
    return checksum(json.dumps(body, sort_keys=True).encode())
