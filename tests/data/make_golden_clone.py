"""The golden clone, `format-2-clone`: a read-only one of the golden store of the engine.

Beside it, the record of a clone in a bucket.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

from kmq_storage.cloning.clone import make_clone
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.clones import CloneRecord, encode_clone
from kmq_storage.objects.local import LocalDisk
from tests.data.making import environment

ENGINE = Path(__file__).resolve().parent / "format-1-engine"
RECORD = CloneRecord(uuid.UUID(int=77), "stores/clone", 41, (b"a" * 16, b"b" * 16, b"c" * 16))


def make(folder: Path) -> None:
    """Write the clone, without what links would share with a folder that is gone."""
    with TemporaryDirectory(dir=folder.parent) as temporary:
        source = Path(shutil.copytree(ENGINE, Path(temporary) / "source"))
        disk, env = LocalDisk(source), environment()
        log = LocalLog(disk, open_identity(disk, env, create=False), env)
        target = LocalDisk(folder)
        make_clone(log, target, read_only=True)
        name, contents = encode_clone(RECORD)
        target.stage(name, [contents], sync=True)
        log.close()
    shutil.rmtree(folder / "locks")
