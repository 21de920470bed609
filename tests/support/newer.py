"""What a newer kmq would have written."""

from __future__ import annotations

import json
from pathlib import Path

from kmq_storage.format.json_bytes import encode_members


def make_newer(folder: Path, version: int) -> None:
    """The store in a folder is of this format from now on, under a checksum that is right."""
    file = folder / "kmq.json"
    members = json.loads(file.read_bytes()) | {"format": version}
    del members["crc32c"]
    file.write_bytes(encode_members(members))
