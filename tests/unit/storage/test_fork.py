"""Forked children: each resource is reopened, whatever becomes of the others."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pytest

from kmq_storage.objects import fork


class _Resource:
    """Notes that it was reopened; one of a store that is gone can't be."""

    def __init__(self, *, is_gone: bool) -> None:
        self.is_gone = is_gone
        self.is_reopened = False

    def reopen(self) -> None:
        if self.is_gone:
            raise FileNotFoundError("the folder was removed")
        self.is_reopened = True


def test_a_resource_that_cannot_be_reopened_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch):
    resources = [_Resource(is_gone=number % 2 == 0) for number in range(8)]
    monkeypatch.setattr(fork, "_known", WeakKeyDictionary[object, str]())
    for each in resources:
        fork.reopen_in_child(each.reopen)
    with pytest.raises(FileNotFoundError):
        fork._after_fork_in_child()
    assert [each.is_reopened for each in resources] == [not each.is_gone for each in resources]
