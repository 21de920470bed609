"""Planted mistakes about files that somebody is about to need; each must be found."""

from __future__ import annotations

from typing import Any

import pytest

from kmq_storage.log.binding import binding
from kmq_storage.log.checkpoints import checkpoint
from kmq_storage.maintenance import collect_rule
from tests.simulation.mutants import Mutant, _nothing


def names_what_was_condemned(patch: pytest.MonkeyPatch) -> None:
    """A commit may name a file that was taken for an orphan."""
    patch.setattr(binding._Binding, "check_files", _nothing)


def collects_orphans_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Files that no commit named yet are deleted by their age alone."""
    patch.setattr(collect_rule.CollectFacts, "goes", _by_age_alone)
    patch.setattr(collect_rule.CollectFacts, "to_condemn", lambda *_: 0)


def _by_age_alone(facts: Any, file: Any) -> bool:
    if facts.kept.has_file(file.path):
        return False
    return bool(facts.named.has_file(file.path) or file.modified <= facts.orphans_before)


def never_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """An idle handle stays on the checkpoint it began with, until that is collected."""
    patch.setattr(checkpoint, "_is_look_due", lambda *_: False)


#: The others show in one of a thousand seeds: tests of collection find them each time.
COLLECTION_MUTANTS: tuple[Mutant, ...] = (collects_orphans_without_a_word,)
