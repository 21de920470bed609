"""The last commit of each producer, to recognise retries and to fence earlier producers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from kmq_storage import limits
from kmq_storage.errors import FencedError

#: Generated names, which no other producer ever uses.
_MADE_UP = re.compile(r"(dead-letters-)?[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The last commit of a producer; a retry of it is acknowledged, but not stored again."""

    epoch: int
    sequence: int
    lsn: int


class Producers(Mapping[str, ProducerState]):
    """The producers that wrote last, by name.

    Producers with names that users chose are remembered apart from those with generated names. So
    any number of unnamed producers can't make the log forget a named one, whose predecessors must
    stay fenced.
    """

    def __init__(self) -> None:
        self._named: dict[str, ProducerState] = {}
        self._others: dict[str, ProducerState] = {}

    def note(self, name: str, state: ProducerState) -> None:
        """Note the last commit of a producer."""
        self._others.pop(name, None)
        self._named.pop(name, None)
        made_up = state.epoch == 0 and _MADE_UP.fullmatch(name)
        kept = self._others if made_up else self._named
        kept[name] = state
        if len(kept) > limits.PRODUCERS_REMEMBERED:
            del kept[next(iter(kept))]

    def check_epoch(self, name: str, epoch: int) -> None:
        """FencedError when a later producer has opened this name."""
        known = self.get(name)
        if known is not None and known.epoch > epoch:
            raise FencedError(
                f"producer {name} was opened again (epoch {known.epoch}); this one has epoch "
                f"{epoch} and is finished",
                producer=name,
                epoch=epoch,
                newer=known.epoch,
            )

    def __getitem__(self, name: str) -> ProducerState:
        found = self._others.get(name)
        return self._named[name] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return chain(self._named, self._others)

    def __len__(self) -> int:
        return len(self._named) + len(self._others)
