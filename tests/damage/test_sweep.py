"""Bytes of every kind of file are flipped and cut: all is found, and no wrong record comes back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.damage.store import Contents, make_store
from tests.damage.sweep import harms, wrong_after

#: `python -m tests.damage.sweep` does more.
SAMPLES = 16
KINDS = (
    "kmq.json",
    "log/0",
    "log/hint",
    "staged",
    "segments",
    "checkpoints",
    "pages",
    "pins",
    "slips",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("damage") / "store"
    return folder, make_store(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_every_harm_is_found_and_no_wrong_record_is_read(store: tuple[Path, Contents], kind: str):
    folder, expected = store
    possible = [each for each in harms(folder, 60, seed=1) if each.file.startswith(kind)]
    chosen = random.Random(2).sample(possible, min(SAMPLES, len(possible)))
    assert [text for each in chosen if (text := wrong_after(folder, each, expected))] == []
