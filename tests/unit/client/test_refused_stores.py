"""Folders that are no store of ours: a clear error, and not a byte of them changed.

Finds: a file that is taken for a store, permissions that end in a traceback, and a store of a
newer version that is read as if it were of ours.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from tests.support.newer import make_newer


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a store with a record."""
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"v").result(10)
    return tmp_path / "store"


@pytest.mark.parametrize("below", ["", "/inside", "/deep/inside"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_that_is_a_file_is_an_invalid_request(tmp_path: Path, below: str, read_only: bool):
    file = tmp_path / "file"
    file.write_bytes(b"precious")
    with pytest.raises(kmq.InvalidRequestError, match="file"):
        kmq.open(f"{file}{below}", read_only=read_only)
    assert _contents(tmp_path) == {"file": b"precious"}


def test_no_store_is_made_among_the_files_of_others(tmp_path: Path):
    (tmp_path / "thesis.txt").write_bytes(b"precious")
    with pytest.raises(kmq.InvalidRequestError, match=r"thesis.txt.*own.*/store"):
        kmq.open(tmp_path)
    assert _contents(tmp_path) == {"thesis.txt": b"precious"}
    kmq.open(tmp_path / "store").close()


def test_a_path_that_no_system_call_takes_is_a_request_error_that_nobody_should_repeat(
    stored: Path, tmp_path: Path
):
    around, long = tmp_path / "around", tmp_path / ("x" * 300)
    around.symlink_to(around)
    for path in (around, long):
        calls = (kmq.open, lambda at: kmq.clone(stored, at))
        for call in (*calls, lambda at: kmq.clone(at, tmp_path / "clone")):
            with pytest.raises(kmq.InvalidRequestError, match="name another folder") as caught:
                call(path)
            assert not caught.value.retryable


def test_what_a_killed_creator_left_and_folders_and_hidden_files_are_no_others(tmp_path: Path):
    (tmp_path / "tmpx1y2.tmp").touch()
    (tmp_path / ".directory").touch()
    (tmp_path / "locks").mkdir()
    (tmp_path / "checkpoint").mkdir()
    kmq.open(tmp_path).close()


def test_files_that_come_to_stand_beside_a_store_bother_nobody(stored: Path):
    (stored / "notes.txt").touch()
    with kmq.open(stored) as store:
        assert store.read("t").read_all().num_rows == 1


def test_a_newer_format_is_a_format_version_error_that_names_both_versions(stored: Path):
    make_newer(stored, 99)
    before = _contents(stored)
    for options in ({}, {"read_only": True}, {"create": False}):
        with pytest.raises(kmq.FormatVersionError, match="99") as caught:
            kmq.open(stored, **options)
        assert isinstance(caught.value, kmq.CorruptionError)
        assert not caught.value.retryable
    assert _contents(stored) == before


def test_a_format_that_changed_bits_make_newer_is_damage(stored: Path):
    known = (stored / "kmq.json").read_bytes()
    at = known.index(b'"format": 1') + len(b'"format": ')
    for bit in range(8):
        changed = bytes([known[at] ^ 1 << bit])
        (stored / "kmq.json").write_bytes(known[:at] + changed + known[at + 1 :])
        with pytest.raises(kmq.CorruptionError, match="damaged") as caught:
            kmq.open(stored)
        assert not isinstance(caught.value, kmq.FormatVersionError)


@pytest.mark.parametrize(
    "foreign",
    [
        *(b"", b"{", b"null", b"[]", b"\x00" * 100, b"{}"),
        *(b'{"format": "2"}', b'{"format": true}', b'{"format": 99.5}'),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
    ids=repr,
)
def test_an_identity_that_cannot_be_read_is_corruption(stored: Path, foreign: bytes):
    (stored / "kmq.json").write_bytes(foreign)
    before = _contents(stored)
    with pytest.raises(kmq.CorruptionError, match=r"kmq\.json") as caught:
        kmq.open(stored)
    assert not isinstance(caught.value, kmq.FormatVersionError)
    assert _contents(stored) == before


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_store_that_may_not_be_opened_says_what_is_enough_to_read_it(
    stored: Path, monkeypatch: pytest.MonkeyPatch, number: int, read_only: bool
):
    """It is true for who asked to read only, too."""

    def refused(file: str, *arguments: object, **named: object) -> object:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(LocalDisk, "open_words", refused)
    told = "who writes must be allowed to change .*, with read_only=True it is enough to be"
    with pytest.raises(kmq.UnavailableError, match=told):
        kmq.open(stored, read_only=read_only)


def test_a_store_that_is_made_on_a_full_disk_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(LocalDisk, "publish", full)
        with pytest.raises(kmq.UnavailableError, match=r"is full; .* free space and try again"):
            kmq.open(tmp_path / "store")
    kmq.open(tmp_path / "store").close()


def test_a_link_that_leads_nowhere_is_no_store_and_none_is_made_there(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(kmq.InvalidRequestError, match="leads nowhere"):
        kmq.open(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_identity_is_corruption_that_names_the_file(stored: Path):
    identity = json.loads((stored / "kmq.json").read_text())
    identity["log_file_bytes"] += 1
    (stored / "kmq.json").write_text(json.dumps(identity))
    before = _contents(stored)
    with pytest.raises(kmq.CorruptionError, match=r"kmq\.json"):
        kmq.open(stored)
    assert _contents(stored) == before


def _as_nobody(calls: str, folder: Path) -> str:
    """What becomes of `calls` on the store in a folder, as somebody with no rights of ours."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody without permission")
    for above in (folder.parent, *folder.parents):
        if above.stat().st_uid == 0 and str(above).startswith("/tmp/"):
            above.chmod(0o755)
    script = f"""
        import os, sys, tempfile
        import kmq_spark as kmq
        with tempfile.TemporaryDirectory() as warm_up:
            for _ in range(2):  # whatever is imported late is imported now
                with kmq.open(warm_up) as store, store.producer() as producer:
                    store.create_topic("t")
                    producer.send("t", b"v").result(10)
                    store.set_group_offsets("g", "earliest", topics=["t"])
                    store.seal(), store.checkpoint(), store.stats(), store.repair()
        folder = sys.argv[1]
        store = kmq.open(folder) if {"store." in calls} else None
        os.seteuid(65534)
        try:
            {calls}
        except kmq.UnavailableError as error:
            print("refused:", error)
        except kmq.KmqError as error:
            print("other:", repr(error))
        else:
            print("allowed")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), folder],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "calls",
    ['kmq.open(folder + "-new")', "kmq.open(folder).topics()", 'store.create_topic("new")'],
)
def test_without_permission_it_is_unavailable_and_says_so(stored: Path, calls: str):
    before = _contents(stored)
    said = _as_nobody(calls, stored)
    assert said.startswith("refused: store ")
    assert "ermission" in said
    assert _contents(stored) == before


def test_who_may_not_read_the_store_to_clone_is_told_who_can_allow_it(stored: Path):
    said = _as_nobody('kmq.clone(folder, folder + "-new")', stored)
    assert said.startswith("refused: store ")
    assert "its owner can allow others to read it" in said


def test_who_may_not_write_where_a_clone_shall_be_is_told_so():
    with tempfile.TemporaryDirectory() as folder:  # not in pytest's own, as below
        shared = Path(folder, "store")
        with kmq.open(shared) as store:
            store.create_topic("t")
        for path in (Path(folder), shared, *shared.rglob("*")):
            path.chmod(0o755)
        said = _as_nobody('kmq.clone(folder, folder + "-new")', shared)
    assert said.startswith("refused: no clone can be made")
    assert "no permission for" in said
    assert "read_only=True" not in said


@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("checkpoints", "offsets('t')"),
        ("pages", "offsets('t')"),
        ("segments", "stats()"),
        ("locks/sync.lock", "set_group_offsets('g', 'earliest', topics=['t'])"),
    ],
)
def test_a_part_that_another_user_made_is_unavailable_and_named(part: str, call: str):
    # Not in pytest's own folder: each run of pytest that begins closes that to others.
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder, "store")
        with kmq.open(shared) as store:
            store.create_topic("t")
            with store.producer() as producer:
                producer.send("t", b"v").result(10)
            store.seal()
            store.checkpoint()
        for path in (shared, *shared.rglob("*")):
            os.chown(path, 65534, 65534) if os.getuid() == 0 else None
        os.chown(shared / part, os.getuid(), os.getgid())
        said = _as_nobody(f"kmq.open(folder).{call}", shared)
    assert said.startswith("refused: store ")
    assert part in said


def test_a_folder_of_somebody_else_keeps_nobody_from_verifying_and_repairing_the_store_beside_it():
    with tempfile.TemporaryDirectory() as folder:  # not in pytest's own, as above
        disk = Path(folder, "disk")
        with kmq.open(disk) as store:
            store.create_topic("t")
        for path in (disk, *disk.rglob("*")):
            os.chown(path, 65534, 65534) if os.getuid() == 0 else None
        (disk / "lost+found" / "inside").mkdir(mode=0o700, parents=True)
        (disk / "lost+found").chmod(0o700)
        assert _as_nobody("assert kmq.open(folder).repair().ok", disk) == "allowed\n"


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800"])
def test_what_no_system_can_call_a_folder_is_no_place(text: str):
    with pytest.raises(kmq.InvalidRequestError, match="not a path or URL"):
        kmq.open(text)
