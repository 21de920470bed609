"""Finds a `kmq serve` that scripts can't wait for, that doesn't end, or ends with a traceback."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kmq_spark.cli import main
from tests.unit.server.made import make_store

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store."""
    made = str(tmp_path / "shop")
    make_store(made)
    return made


@contextmanager
def _serving(url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "kmq_spark.cli", "serve", "--store", url, "--port", "0"]
    with subprocess.Popen(
        [*words, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_from_its_line_on_until_it_is_told_to_end(url: str, how: signal.Signals):
    with _serving(url, "--json") as process:
        where = json.loads(_line(process))
        assert where["url"] == f"http://{where['host']}:{where['port']}/"
        with urllib.request.urlopen(f"{where['url']}health", timeout=60) as response:
            assert response.read() == b"ok\n"
        with socket.create_connection((where["host"], where["port"])):  # one who says nothing
            process.send_signal(how)
            told, errors = process.communicate(timeout=60)
        assert (process.returncode, told, errors) == (0, "", "")


def test_people_are_told_the_page_and_the_store(url: str):
    with _serving(url, "--host", "localhost") as process:
        page, shows, store, *_ = _line(process).split()
        assert (shows, store) == ("shows", f"{url};")
        with urllib.request.urlopen(page, timeout=60) as response:
            assert b">orders<" in response.read()


def test_it_needs_no_spark(url: str):
    code = (
        "import sys, kmq_spark as kmq\n"
        "from kmq_spark.server import listening, view\n"
        "from kmq_spark.server.answers import answer\n"
        "looking = view.View(lambda: kmq.open(sys.argv[1], read_only=True))\n"
        "found = [answer(looking, t, '').status for t in ('/', '/metrics', '/tables/segments')]\n"
        "print(*map(int, found), 'pyspark' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", "200", "200", "False"]


def _fails(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["serve", *words]) == code
    errors = capsys.readouterr().err
    assert code == 2 or errors.count("\n") == 1
    return errors


def test_what_keeps_it_from_beginning_is_told_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str]
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        errors = _fails(["--store", url, "--port", port], 1, capsys)
    assert f"port {port}: {os.strerror(errno.EADDRINUSE)}" in errors
    assert "host a..b" in _fails(["--store", url, "--host", "a..b"], 1, capsys)
    assert "host no.invalid" in _fails(["--store", url, "--host", "no.invalid"], 1, capsys)
    assert "doesn't exist" in _fails(["--store", f"{url}-2"], 1, capsys)


@pytest.mark.parametrize(
    "words", [["--port", "65536"], ["--port", "-1"], ["--port", "x"], ["--nothing"], ["word"]]
)
def test_wrong_words_are_a_wrong_call(
    url: str, words: list[str], capsys: pytest.CaptureFixture[str]
):
    assert "usage: kmq" in _fails(["--store", url, *words], 2, capsys)
