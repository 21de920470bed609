"""A queue whose topics are unbound and bound again, while receivers answer late and twice."""

from __future__ import annotations

import random

from kmq_storage.errors import UnavailableError
from kmq_storage.queues.administration import bind_queue, unbind_queue
from tests.simulation.queue_world import QueueWorld
from tests.simulation.queueing import JOBS
from tests.simulation.scheduler import Task

_TOPICS = ("orders", "profiles")
_TURNS = (12, 24)


class RebindingWorld(QueueWorld):
    """On a disk; what was finished comes again each time, what is held stays its holder's."""

    def _tasks(self) -> list[Task]:
        return [*super()._tasks(), Task("rebinder", Rebinder(self).run)]


class Rebinder:
    """One process that unbinds a topic now and then, and binds it again."""

    def __init__(self, world: RebindingWorld) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))

    def run(self) -> None:
        """Do so some times, then end."""
        log = self._world.open(writes=True)
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                topics = [self._rng.choice(_TOPICS)]
                unbind_queue(log, JOBS, topics)
                self._world.done["unbound"] += 1
                if self._rng.random() < 0.3:
                    self._world.rest(log, log.state.lsn)
                start = self._rng.choice(("earliest", "earliest", "latest"))
                bind_queue(log, JOBS, topics, start)
                self._world.done["bound"] += 1
                self._world.rest(log, log.state.lsn)
            except UnavailableError:
                self._world.done["unknown to the rebinder"] += 1
