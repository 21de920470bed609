"""A queue and the model of it: what is known of each record, and what always holds of both."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, invariant

from kmq_storage.errors import KmqError, LeaseExpiredError
from kmq_storage.format.entries import (
    Entry,
    RecordsEntry,
    TopicEntry,
    decode_entries,
    encode_entry,
)
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    RELEASE,
    TAKING_OVER,
    AnswerEntry,
    BindEntry,
    QueueEntry,
    Run,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.binding.binding import RefusedError, Unit, bind
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import QueueSettings, QueueStats
from tests.property.queue_records import Model, SlipModel, Totals, one_by_one

QUEUE, TOPIC, SLIP = b"q" * 16, b"t" * 16, b"s" * 16
KEYS: list[Key] = [(QUEUE, 0), (TOPIC, 0), (TOPIC, 1)]
#: So few that records often come to their last one.
TRIES = 2


class QueueUnderTest(RuleBasedStateMachine):
    """One queue with a log of its own and a topic of two partitions."""

    order = "none"

    def __init__(self) -> None:
        super().__init__()
        self.state = StoreState()
        self.now = 1_000
        self.records: dict[tuple[Key, int], Model] = {}
        self.totals = Totals()
        #: What somebody got, one by one; also what is answered already.
        self.handed: list[Run] = []
        #: The deliveries that somebody was told of, and that were not given back.
        self.used: set[Run] = set()
        self.slip: SlipModel | None = None
        #: How often the topic was unbound.
        self.unbound = 0
        self.rounds = 0
        definition = QueueSettings(max_deliveries=TRIES, order=self.order).to_json()
        self._commit(QueueEntry(QUEUE, "q", definition), TopicEntry(QUEUE, "queue:q", 1, {}))
        self._commit(TopicEntry(TOPIC, "t", 2, {}))
        self._commit(BindEntry(QUEUE, TOPIC, "earliest"))

    def _commit(self, *entries: Entry) -> list[Entry] | KmqError:
        """What the commit says when it is read back, or why it was refused."""
        try:
            bound = bind(self.state, [Unit(entries)])
        except RefusedError as refused:
            return refused.cause
        bound = list(decode_entries(b"".join(map(encode_entry, bound))))
        self.state.apply(self.state.lsn + 1, self.now, bound)
        return bound

    def _send(self, key: Key, rows: int, schedules: list[Schedule]) -> None:
        entries: list[Entry] = [RecordsEntry(*key, rows, -1, 0, 1, 0, 0, 0, 0, 1)]
        if schedules:
            entries.append(ScheduleEntry(QUEUE, 0, tuple(schedules)))
        base = self.state.topic_by_id(key[0]).parts[key[1]].end  # type: ignore[union-attr]
        assert isinstance(self._commit(*entries), list)
        for offset in range(base, base + rows):
            order = offset % 3 if self.order == "key" else 0
            looked = self.order != "key"
            self.records[key, offset] = Model(key, offset, order=order, looked=looked)
        for each in schedules:
            record = self.records[key, base + each.row]
            record.at, record.expires, record.priority = each.at, each.expires, each.priority

    def _left(self, slip: SlipModel) -> list[Run]:
        return [run for run in slip.runs if run not in slip.noted | slip.others]

    def _must_be_taken_over(self) -> bool:
        return self.slip is not None and self.slip.until <= self.now

    def _ending(self, by: int) -> SlipAnswerEntry:
        assert self.slip is not None
        noted = () if by == TAKING_OVER else tuple(sorted(self.slip.noted))
        return SlipAnswerEntry(QUEUE, ACK, self.now, 0, noted, SLIP, self.slip.round, by)

    def _settled(self) -> None:
        """A commit says what was noted: it is done, though a lock may have ended meanwhile."""
        for run in self.slip.noted if self.slip else ():
            record = self.records[(run.topic_id, run.partition), run.first]
            assert (record.state, record.number) == ("held", run.delivery), "nobody else got it"
            self._answered(record, ACK, 0)
        self.slip = None

    def _expected(self, most: int, *, each_once: bool) -> list[Model]:
        """The records that can be had now, in their order; perhaps of each key one."""
        live = [r for r in self.records.values() if r.state != "done" and not r.is_over(self.now)]
        in_the_way = [
            r
            for r in live
            if (r.at > self.now and r.state in ("held", "waiting")) or r.count >= TRIES
        ]
        if self.order == "strict" and in_the_way:
            return []
        busy = {r.order for r in in_the_way if r.order} if self.order == "key" else set()
        turn = self.totals.turns % len(KEYS)
        turns = {key: n for n, key in enumerate(KEYS[turn:] + KEYS[:turn])}
        due = [r for r in live if r.at <= self.now < r.expires and r.count < TRIES]
        good = [r for r in due if r.looked and r.order not in busy]
        good.sort(key=lambda r: (-r.priority, turns[r.key], r.offset))
        if each_once:
            orders = [r.order for r in good]
            good = [r for n, r in enumerate(good) if not r.order or r.order not in orders[:n]]
        return good[:most]

    def _expire(self) -> None:
        for record in self.records.values():
            if record.state != "done" and record.is_over(self.now):
                record.state = "done"
                self.totals.expired += 1

    def is_in_time(self, runs: list[Run], now: int) -> bool:
        """Whether who got these still holds all of them."""
        records = [self.records[(run.topic_id, run.partition), run.first] for run in runs]
        return all(
            record.state == "held" and record.at > now and record.number == run.delivery
            for record, run in zip(records, runs, strict=True)
        )

    def say(self, runs: list[Run], what: int, delay: int, behind: int) -> None:
        """Answer for these runs, by a clock that is so far behind."""
        at = self.now + delay
        if self.slip is not None:
            self.slip.others.update(runs)
        in_time = self.is_in_time(runs, max(self.now - behind, self.state.time))
        result = self._commit(AnswerEntry(QUEUE, what, self.now - behind, at, tuple(runs)))
        assert isinstance(result, list if in_time else LeaseExpiredError)
        if in_time:
            for run in runs:
                self._answered(self.records[(run.topic_id, run.partition), run.first], what, at)

    def _answered(self, record: Model, what: int, at: int) -> None:
        record.answer(what, at)
        self.totals.acked += what == ACK
        self.totals.dead += what == DEAD
        if what == RELEASE:
            self.used.discard(Run(*record.key, record.offset, 1, record.number))
            self.totals.delivered -= 1

    # --- what is always so --------------------------------------------------------------

    @invariant()
    def the_counts_add_up(self) -> None:
        queue = self.state.queue("q")
        stats = queue.stats(spans_of(self.state, queue), self.now, {})
        live = [r for r in self.records.values() if r.state != "done"]
        held = [r for r in live if r.state == "held" and r.at > self.now]
        over = [r for r in live if r.is_over(self.now)]
        later = [r for r in live if r.state != "held" and r.at > self.now and r not in over]
        ready, t = len(live) - len(held) - len(over) - len(later), self.totals
        assert stats == QueueStats(
            ready, len(held), len(later), t.delivered, t.acked, t.dead, t.expired + len(over)
        )

    @invariant()
    def what_is_given_up_is_known(self) -> None:
        runs = self.state.queue("q").exhausted(self.now)
        assert {(run[:2], run.first) for run in one_by_one(runs)} == {
            place
            for place, record in self.records.items()
            if record.state != "done" and record.at <= self.now and record.count >= TRIES
        }

    @invariant()
    def what_is_not_finished_is_known(self) -> None:
        queue = self.state.queue("q")
        for key, (_, end) in spans_of(self.state, queue).items():
            rows = queue.unfinished(key, end, self.now, None)
            expected = [
                r.offset
                for r in sorted(self.records.values(), key=lambda r: r.offset)
                if r.key == key and r.state != "done" and not r.is_over(self.now)
            ]
            assert rows["offset"].tolist() == expected

    @invariant()
    def all_below_what_may_be_trimmed_is_finished(self) -> None:
        queue = self.state.queue("q")
        for key, (_, end) in spans_of(self.state, queue).items():
            done = queue.done_below(key, end)
            assert all(
                r.state == "done" for r in self.records.values() if r.key == key and r.offset < done
            )
