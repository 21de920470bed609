"""The whole engine against dictionaries: whatever maintenance does and when, readers see the same.

Two handles work on one store; each may be far behind the other when it reads, seals or collects.
Finds: records lost, doubled or moved by any order of sealing, trimming, compaction, checkpoints and
collection; a handle that can't go on after the log or its pages were collected; wrong counts.
"""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kmq_spark.errors import OffsetOutOfRangeError
from kmq_storage.log.checkpoints import paging
from kmq_storage.maintenance import newest
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.memory import MemoryDisk
from kmq_storage.topics import offsets_for_time
from tests.support.engine import Sent, counted, held, open_engine, rows_of, send_rows

PARTITIONS = 2
topics = st.sampled_from(["plain", "keyed"])
partitions = st.integers(0, PARTITIONS - 1)
handles = st.integers(0, 1)
sent = st.builds(
    Sent,
    st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"d"])),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.integers(0, 1_000),
)


class EngineModel(RuleBasedStateMachine):
    """The model: what was sent, by offset, and the start of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(paging, "PAGE_ROWS", 4)
        self.patch.setattr(paging, "_PAGE_ROWS_MIN", 2)
        self.patch.setattr(newest, "_GATHERED_BYTES", 64)
        places = [(topic, number) for topic in ("plain", "keyed") for number in range(PARTITIONS)]
        self.sent: dict[tuple[str, int], dict[int, Sent]] = {place: {} for place in places}
        self.starts = dict.fromkeys(places, 0)
        self.ends = dict.fromkeys(places, 0)

    def teardown(self) -> None:
        """Give back the limits."""
        self.patch.undo()

    @initialize()
    def open(self) -> None:
        """Two handles on an empty store."""
        self.files = MemoryDisk(f"memory://{uuid.uuid4().hex}")
        self.stores = [open_engine(self.files), open_engine(self.files)]
        self.stores[0].create_topic("plain", partitions=PARTITIONS)
        self.stores[0].create_topic("keyed", partitions=PARTITIONS, cleanup="compact")

    @rule(handle=handles)
    def reopen(self, handle: int) -> None:
        """A handle starts anew, at the newest checkpoint."""
        self.stores[handle] = open_engine(self.files)

    @rule(
        handle=handles,
        topic=topics,
        partition=partitions,
        rows=st.lists(sent, min_size=1, max_size=8),
        staged=st.booleans(),
    )
    def send(self, handle: int, topic: str, partition: int, rows: list[Sent], staged: bool) -> None:
        """More records."""
        send_rows(self.stores[handle].log, topic, rows, partition=partition, staged=staged)
        place = topic, partition
        for row in rows:
            self.sent[place][self.ends[place]] = row
            self.ends[place] += 1

    @rule(handle=handles, segment_bytes=st.sampled_from([100, 1_000, 10**6]))
    def seal(self, handle: int, segment_bytes: int) -> None:
        """Whatever is not sealed is sealed."""
        log = self.stores[handle].log
        report = seal(log, plan_seal(log.refresh(), segment_bytes=segment_bytes))
        assert report.conflicts == 0

    @rule(handle=handles)
    def seal_twice_on_one_plan(self, handle: int) -> None:
        """Two maintainers plan the same: the second one's commits are refused."""
        log, other = self.stores[handle].log, self.stores[1 - handle].log
        plans = list(plan_seal(log.refresh())), list(plan_seal(other.refresh()))
        assert seal(log, plans[0]).conflicts == 0
        report = seal(other, plans[1])
        assert (report.segments, report.conflicts) == (0, len(plans[1]))

    @rule(handle=handles, topic=topics, partition=partitions, share=st.floats(0, 1))
    def trim(self, handle: int, topic: str, partition: int, share: float) -> None:
        """The start is raised to anywhere."""
        place = topic, partition
        start = self.starts[place] + int(share * (self.ends[place] - self.starts[place]))
        self.stores[handle].trim(topic, {partition: start})
        self.starts[place] = start
        self.sent[place] = {at: row for at, row in self.sent[place].items() if at >= start}

    @rule(handle=handles, segment_bytes=st.sampled_from([100, 1_000, 10**6]))
    def compact(self, handle: int, segment_bytes: int) -> None:
        """Superseded records of sealed segments go; others merge."""
        log = self.stores[handle].log
        state = log.refresh()
        compact_keys(log, state.topic("keyed"), state.lsn, segment_bytes=segment_bytes)
        merge(log, plan_merges(state.topic("plain"), state.lsn, segment_bytes=segment_bytes, now=0))

    @rule(handle=handles)
    def checkpoint(self, handle: int) -> None:
        """The manifest is written."""
        self.stores[handle].checkpoint()

    @rule(handle=handles)
    def collect(self, handle: int) -> None:
        """Everything that may go goes, at once."""
        collect(self.stores[handle].log, grace=0.0)

    def _expect(self, place: tuple[str, int], found: dict[int, Sent], start: int) -> None:
        wanted = {at: row for at, row in self.sent[place].items() if at >= start}
        if place[0] == "plain":
            assert found == wanted
            return
        assert list(found) == sorted(found)
        assert found.items() <= wanted.items()
        newest = {row.key: at for at, row in sorted(wanted.items()) if row.key is not None}
        kept = set(newest.values()) | {at for at, row in wanted.items() if row.key is None}
        assert kept <= found.keys()
        self.sent[place] = {
            at: row for at, row in self.sent[place].items() if at < start or at in found
        }

    @rule(handle=handles, topic=topics, partition=partitions, share=st.floats(0, 1))
    def read(self, handle: int, topic: str, partition: int, share: float) -> None:
        """What a partition holds from anywhere on."""
        place = topic, partition
        start = self.starts[place] + int(share * (self.ends[place] - self.starts[place]))
        self._expect(place, rows_of(self.stores[handle], topic, partition, start=start), start)

    @rule(handle=handles, topic=topics, partition=partitions)
    def read_below_the_start(self, handle: int, topic: str, partition: int) -> None:
        """An error, never a hole."""
        start = self.starts[topic, partition]
        if start:
            with pytest.raises(OffsetOutOfRangeError):
                rows_of(self.stores[handle], topic, partition, start=start - 1)

    @rule(handle=handles, partition=partitions, time=st.integers(0, 1_100))
    def find_time(self, handle: int, partition: int, time: int) -> None:
        """The first record at or after an instant."""
        rows = sorted(self.sent["plain", partition].items())
        expected = next((at for at, row in rows if row.time >= time), None)
        assert offsets_for_time(self.stores[handle].log, "plain", time)[partition] == expected

    @invariant()
    def counts_agree(self) -> None:
        """What the commits add up to is what the rows say."""
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            state = store.log.refresh()
            for (topic, number), start in self.starts.items():
                part = state.topic(topic).partition(number)
                assert (part.start, part.end) == (start, self.ends[topic, number])
                assert counted(part) == held(state, topic, number)
                if topic == "plain":
                    assert part.rows == len(self.sent[topic, number])


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
