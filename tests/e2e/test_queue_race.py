"""The queue race at a size for a test: all its checks hold, by batches and one by one."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import page_cache
from benchmarks.races import queue_messages, queue_phases, queues, workers

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("by", queue_phases.PHASES)
def test_the_race_runs_whole_and_every_message_is_as_it_was_put(tmp_path: Path, by: str):
    sizes = {"queues": 300, "messages": 9_000, "checks": 500, "checks_at_once": 100}
    options = Namespace(**sizes, processes=2, threads=1, compression=None)
    result = queues.run(options, str(tmp_path), by)
    assert {phase.name: phase.count for phase in result.phases.values()} == {
        "put": 9_000,
        "sort": 9_000,
        "collect": 1,
        "reopen": 1,
        "check": 500,
        "read": 900,
        "check cold": queue_phases.COLD,
    }
    line = f"| kmq, {by.replace('-', ' ')}, sorting in send | 9,000 |"
    assert line in queues.tables([result])
    assert result.most >= result.stored > 0
    assert not list(tmp_path.iterdir())  # there is room for the next one


@pytest.mark.parametrize("by", queue_phases.PHASES)
def test_the_race_runs_whole_where_queues_have_fewer_messages_than_a_check_asks_for(
    tmp_path: Path, by: str
):
    sizes = {"queues": 100, "messages": 250, "checks": 50, "checks_at_once": 20}
    options = Namespace(**sizes, processes=1, threads=2, compression="lz4")
    result = queues.run(options, str(tmp_path), by)
    assert [result.phases[name].count for name in ("put", "sort")] == [200, 200]


def test_workers_end_when_the_race_is_killed():
    code = (
        "from benchmarks.races import workers\n"
        "if __name__ == '__main__':\n"
        "    with workers.Crew(1, 1) as crew:\n"
        "        crew._pool.submit(print, 'at work', flush=True).result()\n"
        "        import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code]
    # Who is left has its output open still.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stdout == "at work\n"
    assert done.returncode < 0


def test_what_it_takes_to_look_at_the_clock_of_the_processor_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
):
    now = 0.0

    def look() -> float:
        nonlocal now
        now += 1.0  # so long it takes
        return 0.0

    monkeypatch.setattr(workers, "time", SimpleNamespace(perf_counter=lambda: now))
    meter = workers.Meter(look)
    with meter.timing():
        now += 0.25
    assert meter.took().seconds == 0.25


def test_the_folder_of_a_race_that_was_killed_goes_with_the_next_one_and_no_other(tmp_path: Path):
    code = (
        "import os, signal, sys\n"
        "from benchmarks.races import workers\n"
        "with workers.own_folder(sys.argv[1]):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with workers.own_folder(str(tmp_path)) as in_use:
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False)
        assert len(list(tmp_path.iterdir())) == 2
        with workers.own_folder(str(tmp_path)) as mine:
            assert {*map(str, tmp_path.iterdir())} == {in_use, mine}
    assert not list(tmp_path.iterdir())


def test_messages_of_the_race_are_those_of_their_queue_and_index():
    of_queues, indexes = np.array([1, 1, 2, 49_999]), np.array([0, 1, 0, 3])
    found = queue_messages.messages(of_queues, indexes).to_pylist()
    assert len(set(found)) == 4
    assert {len(message) for message in found} == {queue_messages.SMALL}
    assert queue_messages.messages(of_queues[1:2], indexes[1:2])[0].as_py() == found[1]
    (large,) = queue_messages.messages(np.array([50_000]), np.array([0])).to_pylist()
    assert len(large) == queue_messages.LARGE


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--messages", "9", "--queues", "10"], "--messages is 9, --queues 10"),
        (["--checks", "0"], "--checks is 0"),
        (["--checks-at-once", "0"], "--checks-at-once is 0"),
        (["--queues", "1", "--processes", "2"], "2 workers share them"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused_before_a_store_is_made(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
):
    with pytest.raises(SystemExit, match="2"):
        queues.main(arguments)
    assert told in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache is Linux's")
def test_what_fills_the_page_cache_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_cache, "_free_memory", lambda: page_cache._FREE + (20 << 20))
    with page_cache.filled(str(tmp_path)) as size:
        assert size == 16 << 20
    assert not list(tmp_path.iterdir())
