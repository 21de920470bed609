"""Writers that race on a server whose answers get lost, and what must stand there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.objects.open import open_files
from tests.support.fault_proxy import DOUBTFUL, Chooser, FaultProxy, sometimes
from tests.support.storage import make_topic, open_log, send, values_of

COMMITS = 8
#: Twice as long as a client waits for an answer: less, and it gives up good ones of a busy machine.
HANG_SECONDS = 6.0


def handles_by(proxy: FaultProxy) -> Callable[[], CommitLog]:
    """Each call another handle on one new store, by way of the proxy."""
    url, options = proxy.new_url(), proxy.options()
    return lambda: open_log(open_files(url, storage_options=options))


def race(proxy: FaultProxy, open_handle: Callable[[], CommitLog], faults: Chooser) -> None:
    """Three writers and the faults: every commit has its own LSN and stands there once."""
    handles = [open_handle() for _ in range(3)]
    make_topic(handles[0])
    proxy.choose = faults

    def write(number: int) -> list[int]:
        return [send(handles[number], b"%d-%d" % (number, n)).lsn for n in range(COMMITS)]

    with ThreadPoolExecutor(3) as pool:
        lsns = [lsn for found in pool.map(write, range(3)) for lsn in found]
    proxy.choose = lambda request: None
    assert sorted(lsns) == list(range(2, 2 + 3 * COMMITS))
    expected = sorted(b"%d-%d" % (number, n) for number in range(3) for n in range(COMMITS))
    assert sorted(values_of(open_handle())) == expected


def doubtful() -> Chooser:
    """Some faults for four of ten uploads of commits."""
    choosers = [sometimes(fault, 0.4 / len(DOUBTFUL), seed=n) for n, fault in enumerate(DOUBTFUL)]
    return lambda request: next(filter(None, (choose(request) for choose in choosers)), None)
