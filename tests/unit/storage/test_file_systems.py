"""Which file systems may hold a store. Finds one on a network that was taken for a local disk."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.objects import file_systems
from kmq_storage.objects.file_systems import file_system_of, how_short_lived, why_unfit
from tests.support.sources import ROOT

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /mnt/share rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
31 30 0:26 / /mnt/share/local rw,relatime - xfs /dev/vdb rw
32 22 0:27 / /home/me/bucket rw,nosuid - fuse.s3fs s3fs rw
33 22 0:28 / /srv/two\\040words rw - cifs //host/x rw
34 22 0:29 / /var/lib rw - overlay overlay rw,lowerdir=/a,upperdir=/b
35 22 0:30 / /twice rw - ext4 /dev/vdc rw
36 22 0:31 / /twice rw - nfs server:/y rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "unfit"),
    [
        ("/home/me/store", "ext4", False),
        ("/mnt/share", "nfs4", True),
        ("/mnt/share/deep/store", "nfs4", True),
        ("/mnt/shared", "ext4", False),
        ("/mnt/share/local/store", "xfs", False),
        ("/home/me/bucket/store", "fuse.s3fs", True),
        ("/srv/two words/store", "cifs", True),
        ("/var/lib/store", "overlay", False),
        ("/twice/store", "nfs", True),
    ],
)
def test_a_path_is_on_the_innermost_and_last_mount(path: str, kind: str, unfit: bool):
    assert file_system_of(path, MOUNTS) == kind
    assert bool(why_unfit(kind)) is unfit


def test_a_store_on_a_network_file_system_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS + f"40 22 0:40 / {tmp_path}/net rw - nfs4 server:/z rw\n")
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    for read_only in (False, True):
        with pytest.raises(kmq.InvalidRequestError, match=r"nfs4.*local disk, or a bucket"):
            kmq.open(tmp_path / "net" / "store", read_only=read_only)
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")


@pytest.mark.parametrize(("comes", "refused"), [("nfs4", "nfs4"), ("ext4", ""), ("", "autofs")])
def test_of_a_place_that_is_mounted_when_it_is_used_what_is_mounted_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str, refused: str
):
    mounts, stat = tmp_path / "mountinfo", os.stat
    mounts.write_text(MOUNTS + f"40 22 0:40 / {tmp_path}/auto rw - autofs /etc/auto.misc rw\n")

    def mount(path: object, **options: Any) -> os.stat_result:
        if comes and str(path) == f"{tmp_path}/auto/store/.":
            with mounts.open("a") as more:
                more.write(f"41 40 0:41 / {tmp_path}/auto rw - {comes} /dev/vdd rw\n")
        return stat(path, **options)

    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    monkeypatch.setattr(file_systems.os, "stat", mount)
    expected: AbstractContextManager[object] = nullcontext()
    if refused:
        expected = pytest.raises(kmq.InvalidRequestError, match=f"is on {refused}, .*or a bucket")
    with expected:
        kmq.open(tmp_path / "auto" / "store", maintenance=False).close()


def test_where_nothing_tells_of_mounts_a_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "missing")
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("fuseblk", "a program"),
        ("fuse.glusterfs", "a program"),
        ("orangefs", "several hosts"),
        ("exfat", "hard links"),
        *((kind, "") for kind in ("ext4", "xfs", "btrfs", "zfs", "f2fs", "ntfs3", "tmpfs")),
    ],
)
def test_what_can_not_be_trusted_is_refused_with_its_own_reason(kind: str, reason: str):
    assert reason in why_unfit(kind)
    assert bool(why_unfit(kind)) is bool(reason)


def test_the_page_of_file_systems_names_each_that_is_refused_or_noted():
    page = (ROOT / "docs" / "design" / "file-systems.md").read_text()
    kinds = {
        "autofs",
        *file_systems._NETWORK,
        *file_systems._WITHOUT_LINKS,
        *file_systems._SHORT_LIVED,
    }
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()
    assert how_short_lived("overlay")
