"""A process as on macOS: what only Linux has is taken away before kmq is imported.

It uses a store with handles of all kinds, then prints `waiting` and waits for a record of another
process. It ends with an error if something doesn't work.
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import fsspec  # noqa: F401 - these and pyarrow ask for the system once, when they are imported
import numpy as np  # noqa: F401 - see above
import pyarrow as pa

_LINUX_ONLY = ("fdatasync", "posix_fallocate", "posix_fadvise", "copy_file_range", "memfd_create")
_FULL_SYNC = 51
#: Files whose drive was asked to empty its cache.
full_syncs: list[int] = []


def _become_macos() -> None:
    sysconfig.get_config_vars()  # kept by Python; read from a file that has the system in its name
    sys.platform = "darwin"
    for name in _LINUX_ONLY:
        delattr(os, name)
    io.open = builtins.open = _without_proc(builtins.open)
    os.open = _without_proc(os.open)
    fcntl.F_FULLFSYNC = _FULL_SYNC
    fcntl.fcntl = _full_sync


def _without_proc(opened: Any) -> Any:
    def open_(path: Any, *arguments: Any, **named: Any) -> Any:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return opened(path, *arguments, **named)

    return open_


def _full_sync(fd: int, command: int) -> int:
    assert command == _FULL_SYNC
    full_syncs.append(fd)
    os.fsync(fd)
    return 0


def _use(folder: Path) -> None:
    import kmq_spark as kmq

    with kmq.open(folder / "store") as store:
        store.create_topic("t", partitions=2)
        store.create_queue("q", topics=["t"])
        with store.producer() as producer, producer.transaction() as transaction:
            transaction.send("t", b"one", b"k")
        with store.producer() as producer:
            producer.send_arrow("t", pa.table({"value": pa.array([bytes(2000)] * 2000)}))
        with store.consumer("g", topics=["t"]) as consumer:
            assert consumer.consume_arrow(5000).num_rows == 2001
            consumer.commit()
        with store.queue("q") as queue:
            queue.ack(queue.receive(max_records=10))
            assert queue.state().num_rows == 1991
        store.seal()
        store.maintain()
    kmq.clone(str(folder / "store"), str(folder / "clone"))
    with kmq.open(folder / "clone", read_only=True) as clone:
        assert clone.read("t").read_all().num_rows == 2001
        assert clone.verify(deep=True).ok
    assert full_syncs


def _wait_for_another_process(folder: Path) -> None:
    import kmq_spark as kmq

    with kmq.open(folder / "store") as store, store.consumer("waits", topics=["t"]) as consumer:
        consumer.seek_to_end()
        print("waiting", flush=True)
        record = consumer.poll(timeout=60.0)
        assert record is not None
        assert record.value == b"from Linux"


if __name__ == "__main__":
    _become_macos()
    _use(Path(sys.argv[1]))
    _wait_for_another_process(Path(sys.argv[1]))
