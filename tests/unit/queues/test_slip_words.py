"""Words of slips prove themselves: what was changed, moved, torn or lost counts for nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kmq_storage import paths
from kmq_storage.format.queue_entries import Run
from kmq_storage.format.slip_words import GROUPS, PLACES, ROUNDS, WORDS, Notes, SlipWords
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.queues.slips import OwnPage, SlipPage
from tests.support.storage import open_folder

FIRST, SECOND = SlipWords(bytes(range(16))), SlipWords(bytes(range(16, 32)))
#: Records of a round in these tests, and words of a sector of a disk.
ROWS, SECTOR = 200, 64


def _told(seals: SlipWords, words: Sequence[int] | np.ndarray[Any, Any]) -> int:
    """How many of all words of a slip prove themselves."""
    rounds, _ = seals.parsed(0, np.asarray(words, np.uint64).tolist())
    return int((rounds >= 0).sum())


def test_a_word_tells_its_round_and_number_whatever_they_are():
    for number in (0, 1, 77, ROUNDS - 1):
        for n in (0, 1, GROUPS, PLACES):
            rounds, numbers = FIRST.parsed(0, FIRST.sealed_at(range(WORDS), number, n))
            assert (set(rounds.tolist()), set(numbers.tolist())) == ({number}, {n})


def test_words_are_the_same_one_by_one_and_together():
    for number in (0, 1, ROUNDS - 1):
        together = SECOND.sealed(slice(None), number)
        assert together == SECOND.sealed_at(range(WORDS), number)


@pytest.mark.parametrize("bit", range(64))
def test_a_word_with_another_bit_proves_nothing(bit: int):
    for number in (0, 1, 2, 9_999):
        words = np.array(FIRST.sealed(slice(None), number), np.uint64)
        assert _told(FIRST, words ^ np.uint64(1 << bit)) == 0


@pytest.mark.parametrize("byte", range(5))
def test_no_other_byte_of_a_value_has_the_same_check_bits(byte: int):
    words = np.array(FIRST.sealed_at(range(WORDS), 1_234, 5), np.uint64)
    for change in range(1, 256):
        assert _told(FIRST, words ^ np.uint64(change << 8 * byte)) == 0


def test_a_word_at_another_place_proves_nothing():
    words = np.array(FIRST.sealed(slice(None), 3), np.uint64)
    assert [shift for shift in range(1, WORDS) if _told(FIRST, np.roll(words, shift))] == []


@pytest.mark.parametrize(
    "words",
    [[0] * WORDS, [2**64 - 1] * WORDS, SECOND.sealed(slice(None), 3)],
    ids=["zeros", "ones", "of another slip"],
)
def test_what_was_not_written_there_proves_nothing(words: list[int]):
    assert _told(FIRST, words) == 0


# --- what counts --------------------------------------------------------------------------


def _notes(number: int, **words: tuple[int, int]) -> Notes:
    """Of eight places and three groups, by name (p0, g1), each with its round and number."""
    places, groups = FIRST.sealed(slice(1, 9), 0), FIRST.sealed(slice(PLACES + 1, PLACES + 4), 0)
    for name, told in words.items():
        at = int(name[1:])
        if name[0] == "p":
            (places[at],) = FIRST.sealed_at([1 + at], *told)
        else:
            (groups[at - 1],) = FIRST.sealed_at([PLACES + at], *told)
    return FIRST.notes(number, places, groups)


def test_notes_of_other_rounds_do_not_count():
    assert _notes(7, p0=(7, 0), p1=(6, 0), p2=(8, 0)) == Notes({0}, set())


def test_a_group_counts_once_its_word_says_so():
    members: dict[str, tuple[int, int]] = {"p1": (7, 2), "p3": (7, 2)}
    assert _notes(7, **members) == Notes(set(), set())
    assert _notes(7, **members, g2=(6, 2)) == Notes(set(), set())
    assert _notes(7, **members, g2=(7, 2)) == Notes({1, 3}, set())


def test_a_group_of_which_notes_are_missing_does_not_count():
    assert _notes(7, p1=(7, 2), p2=(6, 2), g2=(7, 2)) == Notes(set(), {1})


def test_a_group_whose_word_is_damaged_does_not_count():
    places = FIRST.sealed_at(range(1, 4), 7, 1)
    assert FIRST.notes(7, places, [0] * GROUPS) == Notes(set(), {0, 1, 2})


# --- who dies while it writes -------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    opened = open_folder(tmp_path / "store")
    yield opened
    opened.close()


def _slip(number: int) -> Slip:
    return Slip(number, 0, (Run(b"q" * 16, 0, 0, ROWS, 1),), boot=1)


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("places", [[5], [3, 70, 199], list(range(100))])
def test_killed_before_any_store_all_or_none_is_noted(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch, places: list[int]
):
    for dies_at in count():
        page = OwnPage(log)
        slip = _slip(page.next_round())
        page.begin(slip)
        store, left = page._words.store, iter([None] * dies_at)

        def dying(index: int, word: int, store: Any = store, left: Any = left) -> None:
            try:
                next(left)
            except StopIteration:
                raise _KilledError from None
            store(index, word)

        monkeypatch.setattr(page._words, "store", dying)
        died = False
        try:
            assert page.note(places, slip.round, 1)
        except _KilledError:
            died = True
        found = SlipPage(log.files, page.id).notes(slip)
        assert found == Notes(set() if died else set(places), set())
        if not died:
            break
    assert dies_at == len(places) + (len(places) > 1)


class _Machine:
    """Receivers note for some rounds, and each state of the slip is kept, zeros first."""

    def __init__(self, log: CommitLog, rng: random.Random) -> None:
        self.states: list[list[int]] = [[0] * WORDS]
        self.acked: dict[int, list[set[int]]] = {}
        self._rng = rng
        self.page = OwnPage(log)
        words, store = self.page._words, self.page._words.store

        def storing(index: int, word: int) -> None:
            store(index, word)
            self.states.append(words.loaded(0, WORDS))

        self.states.append(words.loaded(0, WORDS))
        self.page._words.store = storing  # type: ignore[method-assign]

    def run(self, rounds: int) -> None:
        """Note single records and some together, in each round."""
        for _ in range(rounds):
            number = self.page.next_round()
            self.page.begin(_slip(number))
            left = self._rng.sample(range(ROWS), ROWS)
            acks = self.acked[number] = []
            for group in range(1, 9):
                some = [left.pop() for _ in range(self._rng.choice((1, 1, 2, 9)))]
                acks.append(set(some))
                assert self.page.note(some, number, group)

    def cut_power(self) -> list[int]:
        """Each sector is as it was at some moment."""
        words: list[int] = []
        for begin in range(0, WORDS, SECTOR):
            words += self._rng.choice(self.states)[begin : begin + SECTOR]
        return words


@pytest.mark.parametrize("seed", range(5))
def test_after_a_power_cut_only_what_was_acknowledged_counts_and_groups_whole(
    log: CommitLog, tmp_path: Path, seed: int
):
    machine = _Machine(log, random.Random(seed))
    machine.run(4)
    file = tmp_path / "store" / paths.slip_file(machine.page.id)
    for _ in range(60):
        file.write_bytes(np.array(machine.cut_power(), "<u8").tobytes())
        page = SlipPage(log.files, machine.page.id)
        for number, acks in machine.acked.items():
            done = page.notes(_slip(number)).done
            assert done == set().union(*(ack for ack in acks if ack <= done))
