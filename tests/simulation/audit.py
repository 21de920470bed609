"""Looks at the store from outside: what checkpoints say against what the log says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kmq_storage import paths
from kmq_storage.format.identity import Identity
from kmq_storage.format.manifest import Row
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_checkpoint
from kmq_storage.log.checkpoints.snapshot import snapshot
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.replica import Replica
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.store_state import StoreState
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watch import is_apart


class _Blank:
    """A hint page that says nothing."""

    def load(self, index: int) -> int:
        return 0


def check_checkpoints(disk: SimulatedDisk, identity: Identity, *, grace: bool) -> None:
    """Each state of a checkpoint is that of the one before it, or of nothing, and the log since.

    Without `grace` pages may be collected before the root that keeps them is published.
    """
    found = [_from_root(disk, identity, *root) for root in sorted(checkpoints(disk))]
    # A collector that was killed leaves a root without its pages, but never the newest one.
    sure = found[-1:] if grace else []
    replicas = [each for each in found if each in sure or _has_pages(disk, each.state)]
    assert replicas or not found, "a checkpoint is whole"
    journal = _journal(disk, identity)
    if journal.folder.first_lsn() == 1:
        replicas.insert(0, _from_nothing(disk, identity))
    for before, after in pairwise(replicas):
        if journal.folder.first_lsn() <= before.cursor.lsn + 1:
            assert before.follow(after.cursor.lsn), "the log up to a checkpoint can be read"
            assert described(before.state) == described(after.state), "a checkpoint says the same"
            assert _at(before.cursor) == _at(after.cursor)


def _has_pages(disk: SimulatedDisk, state: StoreState) -> bool:
    assert state.manifest is not None
    return all(disk.exists(paths.page_file(ref.page_id)) for ref in state.manifest.refs)


def _at(cursor: Cursor) -> tuple[int, int | None, int]:
    return cursor.lsn, cursor.chain, cursor.time


def _journal(disk: SimulatedDisk, identity: Identity) -> Journal:
    hint = Hint(_Blank(), identity.seed, "", float)  # type: ignore[arg-type]
    journal = Journal(disk, identity, hint)
    journal.folder.look_again()
    return journal


def _from_nothing(disk: SimulatedDisk, identity: Identity) -> Replica:
    replica = Replica(disk, _journal(disk, identity), indexed=True)
    replica.state, replica.cursor = StoreState(Manifest(disk, ())), Cursor()
    return replica


def _from_root(disk: SimulatedDisk, identity: Identity, lsn: int, digest: bytes) -> Replica:
    replica = Replica(disk, _journal(disk, identity), indexed=True)
    found = read_checkpoint(disk, lsn, digest)
    replica.state, replica.cursor = found.state(disk, indexed=True), found.cursor
    return replica


def described(state: StoreState) -> tuple[Any, list[tuple[str, int, list[Row]]]]:
    """Everything that a reader's state says."""
    rows = [
        (topic.name, number, _rows(topic.index(number).rows(part.start, part.end)))
        for topic in state.topics.values()
        for number, part in enumerate(topic.parts)
    ]
    return snapshot(state), rows


def _rows(rows: Any) -> list[Row]:
    found = list(rows)
    for before, after in pairwise(found):
        assert before.end_offset <= after.base_offset, "rows don't overlap"
    return found


def files_of(state: StoreState) -> set[str]:
    """The files that a state may refer to: pages, and what rows of kept records stand in."""
    assert state.manifest is not None
    files = {paths.page_file(ref.page_id) for ref in state.manifest.refs}
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            rows = topic.index(number).rows(part.start, part.end)
            files |= {row.path((topic.id, number)) for row in rows}
    return files


def check_counts(state: StoreState, found: dict[tuple[str, int], dict[int, int]]) -> None:
    """Rows and bytes of each partition are what its files hold."""
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            where = f"{topic.name}-{number}"
            held = [
                row.held_from(part.start) for row in topic.index(number).rows(part.start, part.end)
            ]
            assert part.rows == sum(rows for rows, _ in held), f"{where} says {part.rows} records"
            assert part.size == sum(size for _, size in held), f"{where} says {part.size} bytes"
            there = len(found[topic.name, number])
            if not is_apart(topic.name) and topic.settings.cleanup == "delete":
                assert part.rows == there, f"{where} says {part.rows} records, and has {there}"
