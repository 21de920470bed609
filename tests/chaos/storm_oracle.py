"""What the workers of a kill storm were told, kept outside the store, and the check against it."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import kmq_spark as kmq
from tests.chaos.storm_workers import COMPACTED, TOPIC, check_value

Place = tuple[int, int]


class Oracle:
    """Acknowledged records and commits, and everything that contradicts them."""

    def __init__(self) -> None:
        #: Partition and offset of each acknowledged record, by worker and number.
        self.acked: dict[tuple[str, int], Place] = {}
        #: The offsets that each group was told are committed.
        self.committed: dict[str, dict[int, int]] = defaultdict(dict)
        self.wrong: list[str] = []
        self.found = 0

    def hear(self, worker: str, group: str | None, report: bytes) -> None:
        """Take one report of a worker."""
        kind, *facts = report.decode().split("\t")
        if kind == "error":
            self.wrong.append(f"{worker}: {facts[0]}")
        elif kind == "acked":
            number, partition, offset = map(int, facts)
            self.acked[worker, number] = (partition, offset)
        else:
            assert group is not None
            self._hear_offsets(worker, group, kind, list(map(int, facts)))

    def _hear_offsets(self, worker: str, group: str, kind: str, flat: list[int]) -> None:
        for partition, offset in zip(flat[::2], flat[1::2], strict=True):
            known = self.committed[group].get(partition, 0)
            if offset < known:
                self.wrong.append(f"{worker} {kind} {partition}:{offset} before {known}")
            self.committed[group][partition] = offset

    def check(self, store: kmq.Store) -> list[str]:
        """Everything that the store does not hold as it was promised."""
        places = self._places(store)
        self.found = len(places)
        lost = [each for each, place in self.acked.items() if places.get(each) != place]
        if lost:
            self.wrong.append(f"{len(lost)} acknowledged records are not there, as {lost[:5]}")
        self._check_order(places)
        self._check_groups(store)
        self._check_compacted(store)
        lsns = [commit.lsn for commit in store.commits()]
        if lsns != list(range(lsns[0], lsns[0] + len(lsns))):
            self.wrong.append("the commits have gaps")
        self.wrong += [str(damage) for damage in store.verify(deep=True).damage]
        return self.wrong

    def _places(self, store: kmq.Store) -> dict[tuple[str, int], Place]:
        """Where each stored record is; offsets must be dense and no record there twice."""
        places: dict[tuple[str, int], Place] = {}
        counts: Counter[int] = Counter()
        for batch in store.read(TOPIC, columns=["partition", "offset", "value"]):
            for partition, offset, value in zip(*(c.to_pylist() for c in batch), strict=True):
                if offset != counts[partition]:
                    self.wrong.append(f"{partition}:{offset} stands where {counts[partition]} is")
                counts[partition] = offset + 1
                identity = check_value(value)
                if identity in places:
                    self.wrong.append(f"{identity} is there twice")
                places[identity] = (partition, offset)
        return places

    def _check_compacted(self, store: kmq.Store) -> None:
        """Offsets grow, every byte is as it was sent, and compacting once more leaves one a key."""
        store.compact(COMPACTED)
        rows = store.read(COMPACTED, columns=["offset", "key", "value"]).read_all().to_pylist()
        for before, after in pairwise(rows):
            if before["offset"] >= after["offset"]:
                self.wrong.append(f"{after['offset']} of {COMPACTED} follows {before['offset']}")
        for row in rows:
            check_value(row["value"])
        if len({row["key"] for row in rows}) != len(rows):
            self.wrong.append(f"{COMPACTED} has a key twice")

    def _check_order(self, places: dict[tuple[str, int], Place]) -> None:
        """A worker's records: the first ones it sent without a gap, and in order."""
        numbers: dict[str, list[int]] = defaultdict(list)
        ends: dict[tuple[str, int], int] = {}
        for (worker, number), (partition, offset) in sorted(places.items()):
            numbers[worker].append(number)
            if ends.get((worker, partition), -1) >= offset:
                self.wrong.append(f"record {number} of {worker} stands before an earlier one")
            ends[worker, partition] = offset
        for worker, found in numbers.items():
            if found != list(range(len(found))):
                self.wrong.append(f"the records of {worker} have gaps")

    def _check_groups(self, store: kmq.Store) -> None:
        ends = store.offsets(TOPIC)
        for group, told in self.committed.items():
            if not any(told.values()):
                continue  # it began, and may have died before its first commit
            stored = store.describe_group(group).committed.get(TOPIC, {})
            for partition, offset in told.items():
                if not offset <= stored.get(partition, 0) <= ends[partition][1]:
                    self.wrong.append(
                        f"group {group} was told {partition}:{offset}, stored is "
                        f"{stored.get(partition)}, the log ends at {ends[partition][1]}"
                    )
