"""Worlds with a queue, its receivers and senders, and a loop of transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kmq_spark.client.queues import dead_letters
from kmq_spark.client.queues import queue as client_queue
from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.queues.queue import Queue
from kmq_storage.errors import NotFoundError
from kmq_storage.format.entries import ProducerEntry, TopicEntry
from kmq_storage.format.queue_entries import ACK, DEAD, EXHAUSTED, AcquireEntry, AnswerEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.rows import FREE, GONE, LOCKED, WAITING
from kmq_storage.queues.administration import create_queue
from tests.simulation import transacting
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.cards import Place
from tests.simulation.ledger import Account, Ledger, places_of
from tests.simulation.lineage import Lineage, Node
from tests.simulation.queueing import JOBS, Receiver, Receivers, Sender
from tests.simulation.scheduler import Task
from tests.simulation.threads import THREADS
from tests.simulation.transacting import INPUT, LOOP, OUTPUTS, Looper, made_of
from tests.simulation.watch import Watch
from tests.simulation.world import World

PathCheck: TypeAlias = Callable[[Sequence[Node]], None]

_COLUMNS = ["offset", "at", "state", "count"]
_STATES = {FREE: "free", LOCKED: "held", WAITING: "waiting"}
#: Longer than every lock and every delay (seconds), also for clocks that were years ahead.
_AGES = 100 * 365 * 86_400.0


class QueueWatch(Watch):
    """Stands beside a handle, and has each commit judged by those that it follows."""

    def __init__(self, watch: Watch, lineage: Lineage) -> None:
        vars(self).update(vars(watch))
        self.tell_next = lineage.add  # type: ignore[method-assign]


class Queueing(World):
    """What a world has beside the rest of it, on a disk as in a bucket."""

    #: All have one name, on whatever host they run, so that a seed replays.
    limits = (
        (client_queue, "this_process", lambda: "receiver"),
        (dead_letters, "MOVED", 8),  # as one commit, which a log file must hold
        *transacting.LIMITS,
    )
    log_file_bytes = (8 * 1024, 16 * 1024)
    #: How long locks are (seconds): most stalls are longer than the short ones.
    locks = (2.0, 30.0)
    #: Whether records expire, and whether they are sent a second time by their `uniq`.
    expires = choosy = False
    #: How many records a sender sends at once, below the second; and of which priorities.
    sent_at_once = (1, 4)
    priorities: Sequence[int] = range(10)
    receivers_at_once, senders_at_once, loops_at_once = 2, 1, 2
    orders: Sequence[str] = ("none", "none", "key", "strict")

    def __init__(self, seed: int) -> None:
        self.lineage = Lineage()
        self.receivers = Receivers()
        #: Records of transactions that were aborted.
        self.aborted: set[int] = set()
        super().__init__(seed)
        log = self.open()
        for name, _ in OUTPUTS:
            self.topics[name] = self.rng.randbytes(16)
            self._names[self.topics[name]] = name
            log.commit([Unit((TopicEntry(self.topics[name], name, 1, {}),))])
        log.refresh()
        settings = {
            "lock_timeout": self.rng.choice(self.locks),
            "max_deliveries": self.rng.choice((2, 3, None)),
            "backoff": (0.0, 1.0, 20.0),
            "order": self.rng.choice(self.orders),
            **self.more_settings(),
        }
        create_queue(log, JOBS, ["orders", "profiles"], settings, exist_ok=False)
        self.queue_id = log.refresh().queue(JOBS).id

    def more_settings(self) -> dict[str, Any]:
        """Settings of the queue beside the usual ones."""
        return {}

    def _make_place(self) -> None:
        THREADS.scheduler = self.scheduler
        super()._make_place()

    def _new_watch(self) -> Watch:
        return QueueWatch(super()._new_watch(), self.lineage)

    def _tasks(self) -> list[Task]:
        numbers = [self.next_incarnation() for _ in range(self.receivers_at_once)]
        tasks = [Task(f"receiver {n}", Receiver(self, n).run) for n in numbers]
        tasks += [Task(f"sender {n}", Sender(self).run) for n in range(self.senders_at_once)]
        tasks += [Task(f"loop {n}", Looper(self, n).run) for n in range(self.loops_at_once)]
        return super()._tasks() + tasks

    def check_delivery(self, held: Delivery, holder: int, *, durable: bool) -> None:
        """Somebody was told that it holds this record."""
        identity: int = held[7]
        sent = self.oracle.records[identity]
        assert held.value == sent.value, "a record comes as it was sent"
        if held.topic is not None:
            assert identity in self.oracle.written[held.topic, held.partition, held.offset]
        elif "dead_letter_queue" not in held.properties:
            known = self.receivers.sent.get(held.offset)
            assert known is None or known == sent, "another record stands there"
        if durable:
            first = self.receivers.holders.setdefault((held.place, held.run.delivery), holder)
            assert first == holder, f"{held.place} is held by two"

    def finish(self) -> None:
        """Check what is left, then finish all records, and check that each was."""
        super().finish()
        Ending(self, self._path_checks()).check()

    def _path_checks(self) -> tuple[PathCheck, ...]:
        """What else must hold of the commits that came to be."""
        return ()


class QueueWorld(Queueing):
    """On a disk."""


class QueueBucketWorld(Queueing, BucketWorld):
    """In a bucket, where each request takes its time."""

    locks = (30.0, 120.0)


class Ending:
    """The end of a world: what the path of commits that came to be says, and what the store."""

    def __init__(self, world: Queueing, checks: Iterable[PathCheck] = ()) -> None:
        self._world = world
        self._checks = checks
        self._log: CommitLog = world.open()

    def check(self) -> None:
        """AssertionError for anything that is lost, doubled, half done or forgotten."""
        self._check_state(self._path()[0].ledger)
        self._finish_all()
        path = self._path()
        ledger = path[0].ledger
        account = ledger.account(JOBS)
        self._check_all_done(account, ledger)
        self._check_told(path)
        self._check_letters(path)
        self._check_transactions(path)
        for check in self._checks:
            check(path)

    def _path(self) -> list[Node]:
        self._log.refresh()
        _, cursor = self._log.snapshot()
        assert cursor.chain is not None
        return list(self._world.lineage.path(cursor.chain))

    def _check_state(self, ledger: Ledger) -> None:
        """The store has the rows that its commits add up to."""
        for account in ledger.accounts.values():
            queue = self._log.state.queues.by_id(account.id)
            assert queue is not None, "a queue is there"
            assert {name: getattr(queue, name) for name in account.counts} == account.counts
            slips = {key: (s.round, s.until, s.taken) for key, s in queue.slips.items()}
            rounds = {key: (r.number, r.until, r.taken) for key, r in account.rounds.items()}
            assert slips == rounds, "what may be noted is what the commits say"
            there = {
                (key, offset): (_STATES[state], at, count)
                for key, source in queue.sources.items()
                for offset, at, state, count in source.rows.all()[_COLUMNS].tolist()
                if state != GONE and (at or count)
            }
            wanted = {
                place: (card.state, card.at, card.count)
                for place, card in account.cards.items()
                if card.state != "done" and (card.at or card.count)
            }
            assert there == wanted, "the rows are what the commits say"

    def _finish_all(self) -> None:
        idle = 0
        queue = Queue(self._log, JOBS)
        while idle < 3:
            held = queue.receive(50)
            for each in held:
                self._world.check_delivery(each, 0, durable=True)
            if held:
                queue.ack(held)
            idle = 0 if held else idle + 1
            self._world.scheduler.clock += 0.0 if held else _AGES
        stats = queue.stats()
        assert (stats.ready, stats.locked, stats.delayed) == (0, 0, 0), "all is finished"

    @staticmethod
    def _check_all_done(account: Account, ledger: Ledger) -> None:
        for key, begin in account.starts.items():
            start, end = ledger.bounds[key]
            for offset in range(max(begin, start), end):
                assert account.cards[key, offset].state == "done", f"{offset} of {key} is lost"

    def _check_told(self, path: list[Node]) -> None:
        """What durable handles were told is so for ever."""
        told, answered = self._world.receivers, set()
        acquired: Counter[tuple[Place, int]] = Counter()
        for node in path:
            for entry in node.entries:
                if isinstance(entry, AcquireEntry) and entry.queue_id == self._world.queue_id:
                    acquired.update(places_of(entry.runs))
                elif isinstance(entry, AnswerEntry):
                    answered.update(places_of(entry.runs))
        assert told.accepted <= answered, "an answer was accepted, and forgotten"
        assert set(told.holders) <= set(acquired), "a hand-out was taken back"

    def _check_letters(self, path: list[Node]) -> None:
        """Each dead record has one letter, which was read or moved back."""
        dead = Counter(
            place
            for node in path
            for entry in node.entries
            if isinstance(entry, AnswerEntry) and entry.answer in (DEAD, EXHAUSTED)
            for place, _ in places_of(entry.runs)
        )
        found: list[tuple[Any, ...]] = []
        with suppress(NotFoundError):
            letters = Queue(self._log, f"{JOBS}.dlq")
            while held := letters.receive(50):
                found += [_origin(each) for each in held]
                letters.ack(held)
        names = {topic_id: name for name, topic_id in self._world.topics.items()}
        origins = Counter((names.get(key[0]), key[1], offset) for key, offset in dead.elements())
        assert Counter(found) <= origins, "a letter is there twice, or of a record that isn't dead"

    def _check_transactions(self, path: list[Node]) -> None:
        """Everything that was taken was answered once, in both places, in its order."""
        outputs = [self._values(part) for part in OUTPUTS]
        assert outputs[0] == outputs[1], "the topics of a transaction have the same"
        assert len(outputs[0]) == len(set(outputs[0])), "made of one record twice"
        assert self._world.aborted.isdisjoint(self._world.oracle.durable.values()), "aborted"
        offsets = [int(value[2:]) for value in outputs[0] if value.startswith(b"o:")]
        assert offsets == sorted(offsets), "the loop went back"
        part = self._log.state.topic(INPUT[0]).partition(INPUT[1])
        topic_id = self._world.topics[INPUT[0]]
        end = self._log.state.group_offsets(LOOP).get(topic_id, {}).get(INPUT[1], 0)
        assert set(range(part.start, end)) <= set(offsets), "the loop left out a record"
        assert not offsets or offsets[-1] == end - 1, "offsets without the records made of them"
        mine = {value for value in outputs[0] if value.startswith(b"q:")}
        assert mine == {
            made_of(place, delivery)
            for node in path
            if any(isinstance(e, ProducerEntry) and e.producer == LOOP for e in node.entries)
            for entry in node.entries
            if isinstance(entry, AnswerEntry) and entry.answer == ACK
            for place, delivery in places_of(entry.runs)
        }, "an answer without the record made of it, or the other way"

    def _values(self, part: tuple[str, int]) -> list[bytes | None]:
        oracle = self._world.oracle
        places = sorted(place for place in oracle.durable if place[:2] == part)
        return [oracle.records[oracle.durable[place]].value for place in places]


def _origin(letter: Delivery) -> tuple[Any, ...]:
    facts = letter.properties
    where = facts["dead_letter_partition"], facts["dead_letter_offset"]
    return facts.get("dead_letter_topic"), *where
