"""What producers wrote last, so that a retry is found and an earlier one of a name is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from kmq_storage import limits
from kmq_storage.errors import FencedError

#: Names that nobody chose: no other producer ever has one of them.
_MADE_UP = re.compile(r"(dead-letters-)?[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a producer wrote last: a retry of it is answered, not stored again."""

    epoch: int
    sequence: int
    lsn: int


class Producers(Mapping[str, ProducerState]):
    """Those that wrote last, by name.

    Of names that users chose so many are remembered, and of others as many: an earlier producer of
    a name is refused, however many wrote since that never had one.
    """

    def __init__(self) -> None:
        self._named: dict[str, ProducerState] = {}
        self._others: dict[str, ProducerState] = {}

    def note(self, name: str, state: ProducerState) -> None:
        """This one wrote now."""
        self._others.pop(name, None)
        self._named.pop(name, None)
        made_up = state.epoch == 0 and _MADE_UP.fullmatch(name)
        kept = self._others if made_up else self._named
        kept[name] = state
        if len(kept) > limits.PRODUCERS_REMEMBERED:
            del kept[next(iter(kept))]

    def check_epoch(self, name: str, epoch: int) -> None:
        """FencedError for an earlier producer of a name."""
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
