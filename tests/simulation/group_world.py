"""Worlds in which some processes share a group, too: on a disk and in a bucket."""

from __future__ import annotations

from typing import ClassVar

from kmq_spark.client.consuming import member_watch
from kmq_storage.groups import membership
from kmq_storage.log.bucket import bucket_log, combining, follower
from kmq_storage.log.disk import local_log
from kmq_storage.objects import lease
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.consuming import Member
from tests.simulation.scheduler import Task
from tests.simulation.sharing import GroupWatch, Shared, Sharer
from tests.simulation.threads import THREADS, TaskFlag, TaskSleepers
from tests.simulation.watch import Watch
from tests.simulation.world import Limit, World

_SHARERS = 4


class WatchFlag(TaskFlag):
    """That of a member's thread, which looks often."""

    steps = 300


#: A member has a thread that looks at the others, and which uses its handle, too. No number of a
#: process that runs the simulation comes into a commit.
_MEMBERS: tuple[Limit, ...] = (
    (member_watch, "threading", THREADS),
    (member_watch, "Flag", WatchFlag),
    (membership, "this_process", lambda: "host-1"),
)


class Sharing(World):
    """What a world has in which some processes share a group, too."""

    member: ClassVar[type[Sharer]] = Member
    #: How long a member may be silent (seconds).
    timeout = 0.4

    def __init__(self, seed: int) -> None:
        self.shared = Shared()
        super().__init__(seed)

    def _make_place(self) -> None:
        THREADS.scheduler = self.scheduler
        super()._make_place()

    def _new_watch(self) -> Watch:
        return GroupWatch(super()._new_watch(), self.shared, self.scheduler)

    def _tasks(self) -> list[Task]:
        numbers = [self.next_incarnation() for _ in range(_SHARERS)]
        sharers = [Task(f"member {n}", self.member(self, n).run) for n in numbers]
        return super()._tasks() + sharers

    def finish(self) -> None:
        """Check what is left; and that who comes last gets everything, whoever died."""
        super().finish()
        self.scheduler.run([Task("the last one", Member(self, self.next_incarnation()).last)])
        if self.scheduler.failures:
            raise self.scheduler.failures[0]


class GroupWorld(Sharing):
    """On a disk."""

    limits = (*_MEMBERS, (local_log, "threading", THREADS))


class GroupBucketWorld(Sharing, BucketWorld):
    """In a bucket, where members have leases, and each request takes its time."""

    limits = (
        *_MEMBERS,
        *((each, "threading", THREADS) for each in (lease, bucket_log, combining, follower)),
        (lease, "Flag", TaskFlag),
        (follower, "Sleepers", TaskSleepers),
    )
    timeout = 30.0
