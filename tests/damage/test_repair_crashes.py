"""A repair that is killed at any step leaves a store that the next repair makes whole."""

from __future__ import annotations

import os
import shutil
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.mapped_log import MappedLogFile
from kmq_storage.objects.mapped_words import MappedWords
from tests.damage.store import Contents, make_store
from tests.damage.test_repair import check_contents, frame_with, goes_on, harmed

_WRITES = {
    LocalDisk: ("publish", "stage", "stage_together", "remove", "_create_log"),
    MappedLogFile: ("write_at", "clear_from", "sync"),
}
_KILLED = 9
#: `KMQ_REPAIR_STRIDE=1` kills at every step.
STRIDE = int(os.environ.get("KMQ_REPAIR_STRIDE", "43"))


def _die_at(step: int) -> None:
    """Have this process end before it changes anything for the n-th time."""
    steps = count()

    def counted(original: Any) -> Any:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if next(steps) >= step:
                os._exit(_KILLED)
            return original(self, *arguments, **options)

        return call

    for owner, names in _WRITES.items():
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))
    opened = MappedWords.__init__

    def open_words(words: MappedWords, *arguments: Any, **options: Any) -> None:
        opened(words, *arguments, **options)
        store = words.store  # each page has its own
        words.store = partial(counted(lambda _, *word: store(*word)), words)

    MappedWords.__init__ = open_words  # type: ignore[method-assign]


def _repair_and_die(folder: Path, step: int) -> bool:
    """Repair in a child that dies at a step; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(step)
            kmq.open(folder).repair(drop_damaged=True)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, _KILLED)
    return code == 0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("crash") / "store"
    return folder, make_store(folder, rounds=2)


@pytest.mark.parametrize("value", [b"inside 1", b"again"])
def test_a_repair_killed_at_any_step_is_finished_by_the_next_one(
    original: tuple[Path, Contents], tmp_path: Path, value: bytes
):
    source, expected = original
    harm = frame_with(value)(source)
    finished, step = False, 0
    while not finished:
        folder = Path(shutil.copytree(source, tmp_path / str(step)))
        harmed(folder, harm)
        finished = _repair_and_die(folder, step)
        with kmq.open(folder) as again:
            assert again.repair(drop_damaged=True).damage == []
            check_contents(again, expected)
            goes_on(again)
        shutil.rmtree(folder)
        step += STRIDE
    assert step > STRIDE
