"""Every commit that somebody was about to write, as a tree: what of it came to be is one path.

A commit names the one that it follows, so what it is to be judged by is known for certain, also
where several wrote the same LSN and all but one were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import chain_of
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.framing import Framed, Stamp
from tests.simulation.ledger import Ledger

Tell: TypeAlias = Callable[[Cursor, Stamp, Sequence[Entry]], None]


@dataclass(frozen=True)
class Node:
    """One commit, and what all up to it add up to."""

    parent: Node | None
    lsn: int
    entries: Sequence[Entry]
    ledger: Ledger


@dataclass
class Lineage:
    """The commits by their chains; each is judged by those that it follows when it is added."""

    nodes: dict[int, Node] = field(default_factory=lambda: {0: Node(None, 0, (), Ledger())})

    def add(self, after: Cursor, stamp: Stamp, entries: Sequence[Entry]) -> None:
        """A commit is about to be written; AssertionError when it must not be."""
        assert after.chain is not None, "what a commit follows is known"
        parent = self.nodes[after.chain]
        assert parent.lsn == after.lsn
        ledger = parent.ledger.after(entries, stamp.time)
        self.nodes[chain_of(stamp.nonce)] = Node(parent, after.lsn + 1, entries, ledger)

    def path(self, chain: int) -> Iterator[Node]:
        """A commit and those before it, the newest first."""
        node: Node | None = self.nodes[chain]
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True)
class _Told(Framed):
    tell: Tell = lambda *_: None

    def frame(self, after: Cursor, stamp: Stamp, seed: int) -> list[bytes | pa.Buffer]:
        self.tell(after, stamp, self.entries)
        return super().frame(after, stamp, seed)


def told(commit: Framed, tell: Tell) -> Framed:
    """The same commit, which tells of itself when it becomes a frame."""
    return _Told(commit.entries, commit.directory, commit.bodies, commit.placed, tell)
