"""How many processes share a run of all tests, and which tests stay together in one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

#: More than so many gain little: the tests of one Spark session take as long as the rest by then.
_WORKERS_MAX = 4
#: What a process takes with the JVMs that its tests start.
_WORKER_BYTES = 7 << 29
#: The scope of the tests that share one Spark session.
SPARK = "tests/spark"
_OF_SPARK = (f"{SPARK}/", "tests/chaos/test_delta_kills.py")


def count_workers(config: pytest.Config) -> int:
    """One for each core that has memory enough, for a run of everything; else 0, which is none."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    workers = min(len(os.sched_getaffinity(0)), memory // _WORKER_BYTES, _WORKERS_MAX)
    return workers if workers > 1 else 0


def scope_of(nodeid: str) -> str:
    """What stays together in one process: the tests of a file, and all of Spark."""
    return SPARK if nodeid.startswith(_OF_SPARK) else nodeid.partition("::")[0]


def make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """A scheduler that hands out these scopes, in the order of their first tests."""
    from xdist.scheduler import LoadFileScheduling

    class ByScope(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByScope(config, log)
