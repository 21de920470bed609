"""Keyed queues against a dictionary of lists: whatever is put where, and what maintenance does.

Two handles work on one store; each may be far behind the other when it puts, gets, seals or
collects. Finds: messages lost, doubled, moved or of another queue, indexes with gaps, a handle
that can't go on after its files were collected, and an index that is put together wrongly.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.errors import OffsetOutOfRangeError
from kmq_storage.format import queue_directory, queue_table
from kmq_storage.keyed import index, loose, parts, rows
from kmq_storage.keyed.rows import KeyedReader, KeyedRows
from kmq_storage.keyed.wanted import WantedQueues
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.reading import run_index, runs
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.compact import merge, plan_merges
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.memory import MemoryDisk
from tests.support.engine import Sent, open_engine, send_rows
from tests.support.keyed import TOPIC, build, expected_indexes, thin_runs

handles = st.integers(0, 1)
names = st.one_of(
    st.sampled_from([b"a", b"b", b"ab", "ü".encode()]), st.binary(min_size=1, max_size=3)
)
messages = st.lists(st.tuples(names, st.binary(max_size=20)), min_size=1, max_size=12)


wanted = st.one_of(
    st.none(),
    st.builds(
        WantedQueues,
        st.lists(names, max_size=3).map(tuple),
        st.lists(st.sampled_from([b"", b"a", b"\xc3", b"\xff"]), max_size=2).map(tuple),
    ),
)
#: Offset, queue, index and value.
Row = tuple[int, bytes | None, int | None, bytes | None]


def _is_of(wanted: WantedQueues, queue: bytes) -> bool:
    return queue in wanted.names or queue.startswith(wanted.prefixes)


def _refuse(topic: Topic, start: int, end: int) -> None:
    raise OffsetOutOfRangeError(f"{topic.name}: {start} to {end} were trimmed")


class KeyedModel(RuleBasedStateMachine):
    """The model: the messages of each queue in order."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(paging, "PAGE_ROWS", 4)
        self.patch.setattr(paging, "_PAGE_ROWS_MIN", 2)
        self.patch.setattr(parts, "_FAN", 3)
        self.patch.setattr(index, "_SORTED_ROWS", 8)
        self.patch.setattr(index, "_SCAN_ROWS", 4)
        self.patch.setattr(rows, "_SCAN_ROWS", 4)
        self.patch.setattr(loose, "_BATCHES_KEPT", 2)
        self.patch.setattr(queue_table, "_MARKED", 2)
        self.patch.setattr(queue_directory, "_BLOCK_QUEUES", 2)
        self.patch.setattr(runs, "_PIECE_ROWS", 5)
        self.patch.setattr(run_index, "_BLOCKS_KEPT", 2)
        self.patch.setattr(run_index, "_BATCHES_KEPT", 1)
        self.patch.setattr(limits, "MERGED_ROWS", 8)
        self.patch.setattr(limits, "RUN_BATCH_ROWS", 3)
        self.queues: dict[bytes, list[bytes]] = {}
        #: How many messages at the beginning of each queue were given up, and what is kept of all.
        self.gone: Counter[bytes] = Counter()
        self.start = 0
        #: Every record by offset, those that were dropped since, too.
        self.records: list[tuple[bytes | None, bytes | None]] = []
        #: What is being read: what is left of it, what came, and what has to.
        self.reads: list[tuple[Iterator[KeyedRows], list[Row], list[Row]]] = []

    def teardown(self) -> None:
        """Give back the limits, and the threads of producers."""
        self.patch.undo()
        for store in (*self.stores, self.reader):
            store.close()

    @initialize()
    def open(self) -> None:
        """Two handles on an empty store."""
        self.files = MemoryDisk(f"memory://{uuid.uuid4().hex}")
        self.stores = [self._opened(), self._opened()]
        self.reader = self._opened()

    def _opened(self) -> Store:
        store = open_engine(self.files, file_bytes=16_384)
        store.keyed_queues(TOPIC)
        return store

    def _handle(self, handle: int) -> KeyedQueues:
        return self.stores[handle].keyed_queues(TOPIC)

    @rule(handle=handles)
    def leave_and_reopen(self, handle: int) -> None:
        """A handle is left as a killed process leaves it, and one starts at the checkpoint."""
        self.stores[handle].close()
        self.stores[handle] = self._opened()

    @rule(handle=handles, batch=messages, look=st.booleans())
    def put_batch(self, handle: int, batch: list[tuple[bytes, bytes]], look: bool) -> None:
        """Messages of several queues at once."""
        expected = expected_indexes(self.queues, batch)
        self.records += batch
        found = self._handle(handle).put_batch([q for q, _ in batch], [m for _, m in batch])
        if look:
            assert found == expected

    @rule(handle=handles, batch=messages)
    def put_one_by_one(self, handle: int, batch: list[tuple[bytes, bytes]]) -> None:
        """The same, each for itself; then their futures."""
        expected = expected_indexes(self.queues, batch)
        self.records += batch
        puts = [self._handle(handle).put(queue, message) for queue, message in batch]
        assert [put.result() for put in puts] == expected

    @rule(handle=handles, value=st.sampled_from([None, b"x"]), staged=st.booleans())
    def send_what_is_no_message(self, handle: int, value: bytes | None, staged: bool) -> None:
        """Records of no queue."""
        send_rows(self.stores[handle].log, TOPIC, [Sent(None, value)], staged=staged)
        self.records.append((None, value))

    @rule(handle=handles, ended=st.lists(names, max_size=3), anew=st.booleans())
    def delete(self, handle: int, ended: list[bytes], anew: bool) -> None:
        """Some queues end, of which some may not be there; perhaps they begin anew at once."""
        self._handle(handle).delete(*ended)
        for queue in ended:
            self.queues.pop(queue, None)
            del self.gone[queue]
            self.records.append((queue, None))
        if anew:
            self.put_batch(handle, [(queue, b"anew") for queue in ended], look=False)

    def _stay(self) -> list[bool]:
        """Which records are kept in any case: messages after the last end of their queue."""
        ends = {key: offset for offset, (key, value) in enumerate(self.records) if value is None}
        return [
            offset >= self.start
            and (key is None or (value is not None and offset > ends.get(key, -1)))
            for offset, (key, value) in enumerate(self.records)
        ]

    @rule(handle=handles, segment_bytes=st.sampled_from([100, 1_000, 10**6]))
    def seal(self, handle: int, segment_bytes: int) -> None:
        """Whatever is not sealed is sealed."""
        log = self.stores[handle].log
        assert seal(log, plan_seal(log.refresh(), segment_bytes=segment_bytes)).conflicts == 0

    @rule(
        handle=handles,
        segment_bytes=st.sampled_from([100, 1_000, 10**6]),
        now=st.sampled_from([0, 2**62]),
    )
    def merge(self, handle: int, segment_bytes: int, now: int) -> None:
        """Sealed records are put together, and perhaps ends forgotten."""
        log = self.stores[handle].log
        state = log.refresh()
        topic = state.topic(TOPIC)
        merge(log, plan_merges(topic, state.lsn, segment_bytes=segment_bytes, now=now))

    @rule(handle=handles, lives=st.integers(0, 5), anew=st.booleans())
    def thin(self, handle: int, lives: int, anew: bool) -> None:
        """Queues end but for some; runs that are mostly dead by that are written anew alone."""
        self.seal(handle, 10**6)
        self.delete(handle, sorted(self.queues)[lives:], anew)
        self.seal(handle, 10**6)
        assert thin_runs(self.stores[handle]).conflicts == 0

    @rule(handle=handles, now=st.sampled_from([0, 2**62]))
    def seal_and_merge(self, handle: int, now: int) -> None:
        """Everything stands in one run."""
        self.seal(handle, 10**6)
        self.merge(handle, 10**6, now)

    @rule(handle=handles)
    def checkpoint(self, handle: int) -> None:
        """The manifest is written."""
        self.stores[handle].checkpoint()

    @rule(handle=handles)
    def collect(self, handle: int) -> None:
        """Everything that may go goes, at once."""
        collect(self.stores[handle].log, grace=0.0)

    @rule(handle=handles, share=st.floats(0, 1), whole_rows=st.booleans())
    def trim(self, handle: int, share: float, whole_rows: bool) -> None:
        """Old records are given up, as a user says or as retention does."""
        start, store = round(share * len(self.records)), self.stores[handle]
        if whole_rows:
            topic = store.log.refresh().topic(TOPIC)
            rows = topic.index(0).rows(topic.partition(0).start, len(self.records))
            start = max((row.end_offset for row in rows if row.end_offset <= start), default=0)
        store.trim(TOPIC, {0: start})
        self.gone = Counter(self._counted(max(start, self.start)))
        self.start = max(start, self.start)

    def _counted(self, offset: int) -> dict[bytes, int]:
        """How many messages of its present life each queue has before an offset."""
        ends = {key: at for at, (key, value) in enumerate(self.records) if value is None}
        lives = (
            key
            for at, (key, value) in enumerate(self.records[:offset])
            if key is not None and value is not None and at > ends.get(key, -1)
        )
        return Counter(lives)

    @rule(handle=handles, queue=names, offset=st.integers(0, 12), num=st.integers(0, 12))
    def get(self, handle: int, queue: bytes, offset: int, num: int) -> None:
        """Some messages of a queue that may not be there."""
        wanted = self.queues.get(queue, [])[offset : offset + num]
        queues = self._handle(handle)
        if offset < self.gone[queue]:
            with pytest.raises(OffsetOutOfRangeError) as error:
                queues.get(queue, offset, num)
            bounds = error.value.context["start"], error.value.context["end"]
            assert bounds == (self.gone[queue], len(self.queues[queue]))
            return
        assert queues.get(queue, offset, num) == wanted
        found = queues.get_arrow(queue, offset, num).to_pydict()
        assert found == {"index": list(range(offset, offset + len(wanted))), "value": wanted}

    @rule(handle=handles, asked=st.lists(st.tuples(names, st.integers(0, 6)), max_size=9))
    def get_many(self, handle: int, asked: list[tuple[bytes, int]]) -> None:
        """Some messages of several queues, each of them perhaps asked for twice."""
        if any(offset < self.gone[queue] for queue, offset in asked):
            with pytest.raises(OffsetOutOfRangeError):
                self._handle(handle).get_many([q for q, _ in asked], [n for _, n in asked], 3)
            asked = [(queue, self.gone[queue] + offset) for queue, offset in asked]
        found = self._handle(handle).get_many([q for q, _ in asked], [n for _, n in asked], 3)
        wanted = [
            {"queue": queue, "index": first + n, "value": message}
            for queue, first in asked
            for n, message in enumerate(self.queues.get(queue, [])[first : first + 3])
        ]
        assert found.to_pylist() == wanted

    @rule(handle=handles, share=st.floats(0, 1), batch_rows=st.integers(1, 20))
    def read(self, handle: int, share: float, batch_rows: int) -> None:
        """The records of the topic in the order of their offsets, from anywhere on."""
        start = max(int(share * len(self.records)), self.start)
        table = self.stores[handle].read(TOPIC, start={0: start}, batch_rows=batch_rows).read_all()
        offsets = table["offset"].to_pylist()
        assert offsets == sorted(set(offsets))
        assert {n for n, stays in enumerate(self._stay()) if stays and n >= start} <= {*offsets}
        found = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
        assert list(found) == [self.records[offset] for offset in offsets]

    @rule(start=st.floats(0, 1), end=st.floats(0, 1), wanted=wanted)
    def begin_to_read(self, start: float, end: float, wanted: WantedQueues | None) -> None:
        """Some records with their queues and indexes, of all queues or of some."""
        span = sorted(max(round(share * len(self.records)), self.start) for share in (start, end))
        topic = self.reader.log.refresh().topic(TOPIC)
        columns = ("key", "value", "index")
        found = KeyedReader(self.reader.log, topic.id, columns, wanted, _refuse).between(*span)
        counts: Counter[bytes] = Counter()
        expected: list[Row] = []
        for offset, (key, value) in enumerate(self.records[: span[1]]):
            queue = None if key is None or value is None else key
            index = None if queue is None else counts[queue]
            counts.update([queue or b""])
            if value is None and key is not None:
                del counts[key]
            if offset >= span[0] and (wanted is None or (queue and _is_of(wanted, queue))):
                expected.append((offset, queue, index, value))
        self.reads.append((found, [], expected))

    @rule(number=st.integers(0, 3), pieces=st.integers(1, 9))
    def read_on(self, number: int, pieces: int) -> None:
        """More of it, though files have moved meanwhile; in the end it was all, once."""
        if number >= len(self.reads):
            return
        found, came, expected = self.reads[number]
        try:
            for part in islice(found, pieces):
                columns = (part.queues, part.indexes, part.batch.column("value"))
                lists = (column.to_pylist() for column in columns)
                came += zip(part.offsets.tolist(), *lists, strict=True)
                pieces -= 1
        except OffsetOutOfRangeError:  # never a hole
            assert all(row in expected for row in came)
            del self.reads[number]
            return
        if pieces:
            for queue in {row[1] for row in came}:
                of_queue = [row[0] for row in came if row[1] == queue]
                assert of_queue == sorted(of_queue), "in the order of the queue"
            stays = self._stay()
            came.sort(key=itemgetter(0))
            assert [row for row in expected if row in came or stays[row[0]]] == came
            del self.reads[number]

    @invariant()
    def every_handle_knows_every_message(self) -> None:
        """All of it, by both handles."""
        for handle in range(2):
            queues = self._handle(handle)
            found = [name.encode() if isinstance(name, str) else name for name in queues.names()]
            kept = {name: each[self.gone[name] :] for name, each in self.queues.items()}
            assert found == sorted(name for name, messages in kept.items() if messages)
            for name, wanted in kept.items():
                assert queues.size(name) == len(wanted)
                assert queues.span(name) == (self.gone[name], len(self.queues[name]))
                assert queues.get(name, self.gone[name], 1_000) == wanted
            everything = queues.get_many(sorted(kept), None, 1_000)["value"].to_pylist()
            assert everything == [message for name in sorted(kept) for message in kept[name]]


TestKeyedModel = KeyedModel.TestCase
TestKeyedModel.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),  # each step starts threads: shrinking takes minutes
)


@given(st.lists(st.lists(names, max_size=20), max_size=12), st.integers(0, 300), names)
def test_parts_that_are_put_together_say_what_a_list_says(
    arrivals: list[list[bytes]], offset: int, queue: bytes
):
    keys = [name for arrived in arrivals for name in arrived]
    found = build(arrivals)
    of_queue = [at for at, name in enumerate(keys) if name == queue]
    assert {name for names in found.names() for name in names.to_pylist()} == set(keys)
    assert found.offsets(queue, 1, 3).tolist() == of_queue[1:4]
    assert found.count(queue, offset) == len([at for at in of_queue if at < offset])
    found.drop_before(offset)
    assert found.offsets(queue, 0, 999).tolist() == [at for at in of_queue if at >= offset]
