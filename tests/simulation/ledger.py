"""What a prefix of the log says of queues and producers, worked out by a second, slow program.

One small tuple per record that anything is to be said of; every step is checked, so that a commit
that gives a record to two, takes a late answer or passes over a record is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from kmq_storage.format.delivery_numbers import DELIVERIES_APART, times_of
from kmq_storage.format.entries import Entry, ProducerEntry, RecordsEntry, TopicEntry
from kmq_storage.format.layout_entries import TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    RECALL,
    RELEASE,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueEntry,
    Run,
    SlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.state.queues.rows import NEVER
from tests.simulation.cards import FRESH, Card, Place, answered
from tests.simulation.rounds import Round, begun, check_none_ended, ended


@dataclass
class Account:
    """One queue."""

    id: bytes
    name: str
    settings: Mapping[str, Any]
    starts: dict[Key, int] = field(default_factory=dict)
    cards: dict[Place, Card] = field(default_factory=dict)
    #: Up to where somebody looked, and what entered.
    looked: dict[Key, int] = field(default_factory=dict)
    #: Of a partition, from where on which filter holds.
    filters: dict[Key, tuple[tuple[int, str | None], ...]] = field(default_factory=dict)
    #: Where the record with a digest is, and when it was committed.
    uniqs: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    #: What was handed out, and not finished, of topics that it reads no more.
    left: dict[Place, Card] = field(default_factory=dict)
    #: How often topics were unbound.
    unbound: dict[bytes, int] = field(default_factory=dict)
    #: What receivers may still note, by the slip.
    rounds: dict[bytes, Round] = field(default_factory=dict)

    @property
    def tries(self) -> int:
        """How often a record is handed out at most."""
        limit = self.settings["max_deliveries"]
        return 2**31 if limit is None else int(limit)

    def filter_at(self, key: Key, offset: int) -> str | None:
        """The filter that holds there."""
        periods = self.filters.get(key, ())
        return next((wanted for start, wanted in reversed(periods) if start <= offset), None)

    def is_looked_at(self, key: Key, start: int) -> bool:
        """Whether somebody has to look at records before they are had; those from `start` on."""
        periods = self.filters.get(key, ())
        ends = [*(start for start, _ in periods[1:]), NEVER]
        at = max(self.looked.get(key, self.starts[key]), start)
        filtered = any(
            wanted is not None and end > max(begin, at)
            for (begin, wanted), end in zip(periods, ends, strict=bool(periods))
        )
        return filtered or self.settings["order"] == "key"

    def copied(self) -> Account:
        """The same, to be changed."""
        held = {name: dict(each) for name, each in vars(self).items() if type(each) is dict}
        return replace(self, **held)


_COUNTS = ("delivered", "acked", "dead", "expired")


@dataclass
class Ledger:
    """Everything that is known after a commit; never changed, but for those that come after."""

    time: int = 0
    bounds: dict[Key, tuple[int, int]] = field(default_factory=dict)
    accounts: dict[bytes, Account] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: How many partitions there are.
    topics: dict[bytes, int] = field(default_factory=dict)

    def after(self, entries: Sequence[Entry], time: int) -> Ledger:
        """What is known after one more commit."""
        ledger = copy(self)
        for name in ("bounds", "producers", "topics"):
            setattr(ledger, name, dict(getattr(self, name)))
        ledger.accounts = {key: each.copied() for key, each in self.accounts.items()}
        bases: dict[Key, int] = {}
        for entry in entries:
            ledger._take(entry, entries, bases, time)
        ledger.time = time
        return ledger

    def account(self, name: str) -> Account:
        """The queue of this name."""
        (found,) = (each for each in self.accounts.values() if each.name == name)
        return found

    def _take(
        self, entry: Entry, entries: Sequence[Entry], bases: dict[Key, int], time: int
    ) -> None:
        match entry:
            case TopicEntry():
                self.topics[entry.topic_id] = entry.partitions
                for number in range(entry.partitions):
                    self.bounds.setdefault((entry.topic_id, number), (0, 0))
            case RecordsEntry():
                key = entry.topic_id, entry.partition
                start, end = self.bounds[key]
                assert entry.base_offset == end, "offsets are dense"
                bases.setdefault(key, end)
                self.bounds[key] = start, end + entry.rows
            case TrimEntry():
                self._trim((entry.topic_id, entry.partition), entry.start)
            case ProducerEntry():
                self._note_producer(entry)
            case QueueEntry():
                assert entry.settings is not None
                account = Account(entry.queue_id, entry.name, entry.settings)
                account.starts[entry.queue_id, 0] = 0
                self.accounts[entry.queue_id] = account
            case BindEntry():
                self._bind(self.accounts[entry.queue_id], entry)
            case ScheduleEntry():
                key = entry.queue_id, 0
                for each in entry.schedules:
                    card = Card(at=each.at, priority=each.priority, expires=each.expires)
                    self.accounts[entry.queue_id].cards[key, bases[key] + each.row] = card
            case UniqEntry() if entry.topic_id in self.accounts:
                self._note_uniqs(self.accounts[entry.topic_id], entry, time)
            case LookEntry():
                self._look(self.accounts[entry.queue_id], entry)
            case AcquireEntry():
                self._acquire(self.accounts[entry.queue_id], entry)
            case SlipAnswerEntry():
                self._settle(self.accounts[entry.queue_id], entry)
            case AnswerEntry():
                self._answer(self.accounts[entry.queue_id], entry, entries)

    def _note_producer(self, entry: ProducerEntry) -> None:
        now, before = (entry.epoch, entry.sequence), self.producers.get(entry.producer)
        assert before is None or before < now, f"{entry.producer} goes from {before} to {now}"
        self.producers[entry.producer] = now

    def _trim(self, key: Key, start: int) -> None:
        before, end = self.bounds[key]
        start = min(max(before, start), end)
        own = self.accounts.get(key[0])
        for offset in range(before, start if own else before):
            card = own.cards.get((key, offset), FRESH) if own else FRESH
            assert card.state == "done", f"{offset} was trimmed, and is {card.state}"
        self.bounds[key] = start, end
        for account in self.accounts.values():
            for cards in (account.cards, account.left):
                for place in [place for place in cards if place[0] == key]:
                    if place[1] < start:
                        cards[place] = cards[place]._replace(state="done")

    # --- queues -------------------------------------------------------------------------

    def _bind(self, account: Account, entry: BindEntry) -> None:
        if entry.starts is None:
            self._unbind(account, entry.topic_id)
            return
        assert isinstance(entry.starts, tuple)
        for number in range(self.topics[entry.topic_id]):
            key = entry.topic_id, number
            start = entry.starts[number] if number < len(entry.starts) else 0
            if key not in account.starts:
                again = [place for place in account.left if place[0] == key and place[1] >= start]
                account.cards |= {place: account.left.pop(place) for place in again}
            account.starts.setdefault(key, start)
            account.filters[key] = (*account.filters.get(key, ()), (start, entry.filter))

    def _unbind(self, account: Account, topic_id: bytes) -> None:
        """What was finished is forgotten, and so is what nobody had."""
        account.unbound[topic_id] = account.unbound.get(topic_id, 0) + 1
        for number in range(self.topics[topic_id]):
            for known in (account.starts, account.looked, account.filters):
                known.pop((topic_id, number), None)  # type: ignore[attr-defined]
        for place in [place for place in account.cards if place[0][0] == topic_id]:
            card = account.cards.pop(place)
            if card.state != "done" and card.count:
                account.left[place] = card

    def _note_uniqs(self, account: Account, entry: UniqEntry, time: int) -> None:
        since = max(entry.time, self.time) - round(account.settings["uniq_window"] * 1e6)
        for _, offset, digest in entry.uniqs:
            before = account.uniqs.get(digest)
            assert before is None or before[1] <= since, f"{offset} is there, at {before}"
            account.uniqs[digest] = offset, time

    def places(self, account: Account) -> Iterable[tuple[Place, Card]]:
        """What a queue has not finished, as far as it may be handed out."""
        for key, begin in account.starts.items():
            start, end = self.bounds[key]
            end = account.looked.get(key, begin) if account.is_looked_at(key, start) else end
            for offset in range(max(begin, start), end):
                card = account.cards.get((key, offset), FRESH)
                if card.state != "done":
                    yield (key, offset), card

    def _look(self, account: Account, entry: LookEntry) -> None:
        key = entry.topic_id, entry.partition
        assert key in account.starts, "only what is read is looked at"
        begin = account.looked.get(key, account.starts[key])
        assert entry.start >= begin, "records are looked at once"
        assert entry.end <= self.bounds[key][1], "only what is there is looked at"
        entered = [o for first, rows in entry.entered for o in range(first, first + rows)]
        keys = dict(zip(entered, entry.keys or [0] * len(entered), strict=True))
        for offset in range(begin, entry.end):
            card = account.cards.get((key, offset), FRESH)
            if offset in keys:
                card = card._replace(order=keys[offset])
            elif not card.count:  # else it was held when the topic was unbound, and stays
                card = card._replace(state="done")
            account.cards[key, offset] = card
        account.looked[key] = entry.end

    def _acquire(self, account: Account, entry: AcquireEntry) -> None:
        assert entry.time >= self.time, "time does not go back"
        check_none_ended(account.rounds, entry.time)
        for place, card in account.cards.items():
            if card.is_over(entry.time):
                account.cards[place] = card._replace(state="done")
                account.counts["expired"] += 1
        ready = dict(self.places(account))
        taken = {place: run for run in entry.runs for place in _places(run)}
        if not entry.most:
            assert not taken, "who asks for none gets none"
            return  # it only has those forgotten that are over
        assert 0 < len(taken) <= entry.most
        for place, run in taken.items():
            assert place in ready, f"{account.name} has no {place}, or it is done"
            card = ready[place]
            assert card.at <= entry.time, f"{place} is {card.state} until {card.at}"
            before = card.count or account.unbound.get(place[0][0], 0) * DELIVERIES_APART
            assert before + 1 == run.delivery, f"{place}: {card}, {run}"
            assert times_of(run.delivery) <= account.tries, f"{place}: {card}, {run}"
        self._check_order(account, entry, ready, taken)
        for place, run in taken.items():
            held = ready[place]._replace(state="held", at=entry.until, count=run.delivery)
            account.cards[place] = held
            start, _ = self.bounds[place[0]]
            if not account.is_looked_at(place[0], start):  # a later filter is not for these
                behind = account.looked.get(place[0], account.starts[place[0]])
                account.looked[place[0]] = max(behind, place[1] + 1)
        account.counts["delivered"] += len(taken)
        if isinstance(entry, SlipAcquireEntry):
            begun(account.rounds, entry, places_of(entry.runs))

    @staticmethod
    def _check_order(
        account: Account, entry: AcquireEntry, ready: dict[Place, Card], taken: Iterable[Place]
    ) -> None:
        """Nothing is passed over that comes first, and may be had."""
        busy = {
            place: card
            for place, card in (account.cards | ready).items()
            if card.state != "done"
            and (
                (card.state in ("held", "waiting") and card.at > entry.time)
                or times_of(card.count) >= account.tries
            )
        }
        order = account.settings["order"]
        assert not (busy and order == "strict"), "another one is held, or waits"
        blocked = {card.order for card in busy.values() if order == "key" and card.order}
        free = {
            place: card
            for place, card in ready.items()
            if card.at <= entry.time and place not in busy and card.order not in blocked
        }
        once = _keys_once(entry, [free[place].order for place in taken if place in free])
        for place in taken:
            assert place in free, f"{place} is to wait for another one of its key"
            key, offset = place
            mine = free[place]
            for (other, before), card in free.items():
                if card.order in once and card.order != mine.order:
                    continue  # it waits for the one of its key
                first = card.priority > mine.priority or (
                    card.priority == mine.priority and other == key and before < offset
                )
                assert not first or (other, before) in taken, f"{place} came before {before}"

    def _settle(self, account: Account, entry: SlipAnswerEntry) -> None:
        """What was noted is done, unless another answer of the same delivery came first."""
        assert entry.time >= self.time, "time does not go back"
        noted = list(places_of(entry.runs))
        ended(account.rounds, entry, noted)
        for place, delivery in noted:
            card = account.cards.get(place, FRESH)
            if card.state == "held" and card.count == delivery:
                account.cards[place] = card._replace(state="done")
                account.counts["acked"] += 1

    def _answer(self, account: Account, entry: AnswerEntry, entries: Sequence[Entry]) -> None:
        assert entry.time >= self.time, "time does not go back"
        places = {place: run for run in entry.runs for place in _places(run)}
        if entry.answer == EXHAUSTED:
            check_none_ended(account.rounds, entry.time)
        for place, run in places.items():
            assert place[0] in account.starts, f"{place} is of a topic that is not read"
            card = account.cards.get(place, FRESH)
            assert card.state != "done", f"{place} was finished before"
            nobody_had_it = card.count == times_of(run.delivery) == 0  # after a new binding, too
            same = nobody_had_it or card.count == run.delivery
            assert same, f"{place} went to somebody else meanwhile"
            held = card.state == "held" and card.at > entry.time
            nobodys = entry.answer in (EXHAUSTED, RECALL)
            assert held != nobodys, f"{place} is {card.state} until {card.at}, not at {entry.time}"
            account.cards[place] = answered(card, entry)
        if entry.answer in (DEAD, EXHAUSTED):
            self._check_buried(account, len(places), entries)
        counted = {ACK: "acked", DEAD: "dead", EXHAUSTED: "dead"}.get(entry.answer)
        if counted:
            account.counts[counted] += len(places)
        elif entry.answer == RELEASE:
            account.counts["delivered"] -= len(places)

    def _check_buried(self, account: Account, rows: int, entries: Sequence[Entry]) -> None:
        letters = self.account(account.settings["dead_letter"] or f"{account.name}.dlq").id
        moved = [e for e in entries if isinstance(e, RecordsEntry) and e.topic_id == letters]
        assert sum(each.rows for each in moved) == rows, "as many letters as records"


def _keys_once(entry: AcquireEntry, orders: list[int]) -> set[int]:
    """The keys of which only the first record is had, since it is noted when it is done."""
    keys = [order for order in orders if order and isinstance(entry, SlipAcquireEntry)]
    assert len(keys) == len(set(keys)), "two of a key could be noted in any order"
    return set(keys)


def places_of(runs: Iterable[Run]) -> Iterable[tuple[Place, int]]:
    """Each record of some runs, with its delivery."""
    return ((place, run.delivery) for run in runs for place in _places(run))


def _places(run: Run) -> Iterable[Place]:
    key = run.topic_id, run.partition
    return ((key, offset) for offset in range(run.first, run.first + run.rows))
