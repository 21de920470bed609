"""Make the golden clone: `python tests/data/make_golden_clone.py FOLDER`.

A read-only clone of the golden store of the engine, and the record of a clone in a bucket. Run
once; what it made before must stay readable for ever, so `format-2-clone` is never made again.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

from kmq_storage.cloning import make_clone
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.clones import CloneRecord, encode_clone
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import environment

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


if __name__ == "__main__":
    make(Path(sys.argv[1]))
