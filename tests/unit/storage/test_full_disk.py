"""A real file system that is full: nothing is lost, and the log goes on when there is space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.errors import UnavailableError
from tests.support.storage import make_topic, open_folder, send, values_of


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mount is not allowed here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_really_full_file_system_loses_nothing_and_goes_on(small_file_system: Path):
    log = open_folder(small_file_system / "store")
    make_topic(log)
    stored: list[bytes] = []
    with pytest.raises(UnavailableError, match="is full"):
        for number in range(200):
            value = bytes([number % 256]) * 20_000
            send(log, value)
            stored.append(value)
    assert stored
    assert values_of(log) == stored
    (small_file_system / "ballast").touch()
    for path in (small_file_system / "store" / "log").glob("*.tmp"):
        path.unlink()
    subprocess.run(
        ["mount", "-o", "remount,size=4m", str(small_file_system)], check=True, capture_output=True
    )
    send(log, b"goes on")
    assert values_of(open_folder(small_file_system / "store")) == [*stored, b"goes on"]


@pytest.mark.parametrize("begin", ["whole", "torn", "cut off"])
def test_a_full_file_system_in_memory_is_verified_and_read_to_the_end(
    small_file_system: Path, begin: str
):
    """A look at a hole through a map takes a page there: without space the process would die."""
    remount = ["mount", "-o", "remount,size=6m", str(small_file_system)]
    subprocess.run(remount, check=True, capture_output=True)
    folder = small_file_system / "store"
    with kmq.open(folder, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"v").result(10)
    if begin != "whole":
        (folder / "log" / "hint").unlink()
    if begin == "torn":
        with (folder / "log" / "00000000000000000001.log").open("r+b") as log:
            log.seek(16 * 1024)
            log.write(b"KMQ1")
    elif begin == "cut off":
        os.truncate(folder / "log" / "00000000000000000001.log", 8 * 1024 * 1024)
    with suppress(OSError), (small_file_system / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    code = (
        f"import kmq_spark as kmq; store = kmq.open({str(folder)!r}, read_only=True);"
        "store.verify(deep=True); print(store.read('t', end={0: 1}).read_all().num_rows)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr
