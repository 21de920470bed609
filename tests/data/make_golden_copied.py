"""The golden store of a copied queue: `format-1-copied`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kmq_storage.copying.topics import copy_topics
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data import make_golden_queues
from tests.data.making import environment, without_traces


def make(folder: Path) -> None:
    """Write the store: a copy of the golden store of queues, without a checkpoint."""
    env = environment()
    env.new_uuid()  # the original's id, which is made with such an environment, too
    with tempfile.TemporaryDirectory() as temporary:
        original = Path(temporary) / "store"
        make_golden_queues.make(original)
        source_disk, disk = LocalDisk(original), LocalDisk(folder)
        source = LocalLog(source_disk, open_identity(source_disk, env, create=False), env)
        identity = open_identity(disk, env, create=True, log_file_bytes=65_536)
        log = LocalLog(disk, identity, env)
        copy_topics(source, log)
        source.close()
        log.close()
    without_traces(folder)
