"""Slips are flipped and cut after their receivers died: nothing counts that was not noted."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics
from kmq_storage.objects.local import LocalDisk
from kmq_storage.queues.slips import boot_of
from tests.damage.sweep import Harm, harms
from tests.data.make_golden_sealed_slips import FIRST, SECOND, make
from tests.support.damage import flip
from tests.support.sources import ROOT

#: What was acknowledged by notes that no commit tells of (two of them together), and before.
SINGLE, TOGETHER, COMMITTED = {9}, {4, 6}, {1, 2}
UNANSWERED = set(range(15)) - SINGLE - TOGETHER - COMMITTED
FILES = [f"slips/{slip.hex()}" for slip in (FIRST, SECOND)]
#: Bytes of words that are looked at closely: those that were set, and their neighbours.
NEAR = [*range(48), *range(8 * 1983, 8 * 1987)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Locks ended years ago, in this very start of the machine."""
    folder = tmp_path_factory.mktemp("slips") / "store"
    make(folder, boot_of(LocalDisk(folder)))
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def _verified(folder: Path) -> kmq.Report:
    with kmq.open(folder, create=False, read_only=True) as store:
        return store.verify()


def _received(folder: Path) -> set[int]:
    with kmq.open(folder, create=False, maintenance=False) as store, store.queue("q") as queue:
        return {each.offset for each in queue.receive(100)}


def _chosen(folder: Path) -> list[Harm]:
    rng = random.Random(3)
    flips = [Harm(file, at, 1 << rng.randrange(8)) for file in FILES for at in rng.sample(NEAR, 9)]
    spread = [each for each in harms(folder, 40, seed=4) if each.file in FILES]
    return flips + rng.sample(spread, 14)


def test_what_is_damaged_never_counts_as_acknowledged(original: Path, tmp_path: Path):
    for number, harm in enumerate(_chosen(original)):
        copied = Path(shutil.copytree(original, tmp_path / f"store {number}"))
        with harm.done(copied):
            report = _verified(copied)
            assert {each.file for each in report.damage} == {harm.file}, harm
            received = _received(copied)
        assert received >= UNANSWERED, harm
        assert received.isdisjoint(COMMITTED), harm
        assert (received & TOGETHER) in (set(), TOGETHER), harm


def test_verify_names_the_records_that_come_again_until_somebody_takes_over(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    flip(folder / FILES[1], 16)
    (damage,) = _verified(folder).damage
    assert (damage.topic, damage.partition, damage.start, damage.end) == ("queue:q", 0, 9, 10)
    assert "comes again" in damage.reason
    with caplog.at_level(logging.WARNING):
        assert _received(folder) == UNANSWERED | SINGLE
    assert "the notes of 1 records can't be proven" in caplog.text
    assert _verified(folder).ok


@pytest.mark.parametrize("lost", ["file", "contents", "page"])
@pytest.mark.parametrize("same_start", [True, False])
def test_what_a_power_cut_leaves_is_no_damage_unless_the_machine_never_stopped(
    tmp_path: Path, lost: str, same_start: bool
):
    folder = tmp_path / "store"
    make(folder, boot_of(LocalDisk(folder)) + (not same_start))
    slip = folder / FILES[0]
    if lost == "file":
        slip.unlink()
    elif lost == "contents":
        slip.write_bytes(b"")
    else:
        slip.write_bytes(bytes(4096) + slip.read_bytes()[4096:])
    report = _verified(folder)
    assert report.ok is not same_start
    assert any(FILES[0] in note for note in report.notes) is not same_start
    assert _received(folder) == UNANSWERED | TOGETHER


def test_a_slip_without_check_bits_is_read_as_before_and_its_length_is_looked_at(tmp_path: Path):
    folder = Path(shutil.copytree(ROOT / "tests" / "data" / "format-1-slips", tmp_path / "store"))
    assert _verified(folder).ok
    slip = folder / FILES[1]
    slip.write_bytes(slip.read_bytes()[:-1])
    (damage,) = _verified(folder).damage
    assert (damage.file, "16383 bytes" in damage.reason) == (FILES[1], True)
    assert _received(folder) == {0, 3, 5, 7, 9, 10, 11, 12, 13, 14}


def test_repair_commits_what_is_proved_and_has_the_rest_come_again(folder: Path):
    flip(folder / FILES[0], 8)
    with kmq.open(folder, create=False, maintenance=False) as store:
        report = store.repair()
        assert report.ok
        assert [note for note in report.notes if FILES[0] in note] != []
        assert list(store.log.refresh().queue("q").slips) == [SECOND]
    assert _received(folder) == UNANSWERED | TOGETHER


def test_a_copy_of_a_cut_slip_has_what_it_proves(folder: Path, tmp_path: Path):
    slip = folder / FILES[1]
    slip.write_bytes(slip.read_bytes()[:100])
    with (
        kmq.open(folder, create=False, read_only=True) as source,
        kmq.open(tmp_path / "copy") as target,
    ):
        copy_topics(source.log, target.log)
    assert _received(tmp_path / "copy") == UNANSWERED


def test_a_clone_has_what_was_noted(folder: Path, tmp_path: Path):
    kmq.clone(folder, tmp_path / "clone")
    assert _verified(tmp_path / "clone").ok
    assert _received(tmp_path / "clone") == UNANSWERED
