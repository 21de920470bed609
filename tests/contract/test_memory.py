"""The contract of `Disk` on memory. Finds where notebooks and simulations differ from a disk."""

from __future__ import annotations

import uuid

import pytest

from kmq_storage.objects.disk import Disk
from kmq_storage.objects.memory import memory_disk
from tests.contract.disk_contract import DiskContract


class TestMemoryDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return memory_disk(uuid.uuid4().hex)

    @pytest.fixture
    def files(self, disk: Disk) -> Disk:
        return disk

    def test_a_read_only_view_has_the_same_files(self):
        name = uuid.uuid4().hex
        store, view = memory_disk(name), memory_disk(name, read_only=True)
        store.publish("kmq.json", [b"x"], sync=True)
        assert view.read("kmq.json") == b"x"
        assert view.read_only
        assert not memory_disk(name).read_only
