"""The `kmq` command: what it prints, and how it ends."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main
from kmq_spark.cli.command_line import _parser
from kmq_spark.cli.output import plain
from kmq_spark.cli.table import COMMANDS

Run = Callable[..., Any]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with topic `orders` of two partitions and three records."""
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        store.create_topic("orders", partitions=2)
        with store.producer() as producer:
            producer.send_batch("orders", [b"1", b"2", b"3"], [b"a", b"b", b"c"], partition=0)
    return url


@pytest.fixture
def run_json(run: Run) -> Run:
    """Runs a command with --json and gives what it printed as a value."""
    return lambda *words: json.loads(run(*words, "--json"))


@pytest.fixture
def fail(url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that must fail with 1 and gives its one line on stderr."""

    def run_command(*words: str, store: str = url) -> str:
        assert main([*words, "--store", store]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return run_command


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


# How it ends


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["topic"],
        ["topic", "create"],
        ["topic", "list", "--unknown"],
        ["topic", "create", "t", "--partitions", "many"],
        ["topic", "list"],
        ["archive", "lake", "--store", "shop", "--storage-option", "region"],
        ["copy", "shop", "memory://copy"],
    ],
)
def test_wrong_usage_ends_with_two(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("KMQ_STORE", raising=False)
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help(command: Any, capsys: pytest.CaptureFixture[str]):
    assert main([*command.name.split(), "--help"]) == 0
    assert command.summary in " ".join(capsys.readouterr().out.split())


def test_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kmq ")


def test_missing_store_is_one_clear_line(fail: Run, tmp_path: Path):
    assert "doesn't exist" in fail("topic", "list", store=str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_missing_topic_is_one_clear_line(fail: Run):
    assert "Topic[nope] doesn't exist" in fail("topic", "describe", "nope")


def test_store_that_is_a_file_is_one_clear_line(fail: Run, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("text")
    assert str(file) in fail("topic", "list", store=str(file))
    assert file.read_text() == "text"


def test_store_may_come_from_the_environment_or_stand_before_the_command(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert main(["--store", url, "--json", "topic", "list"]) == 0
    given = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("KMQ_STORE", url)
    assert main(["topic", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == given


def test_reader_of_the_output_may_leave_early(url: str):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kmq_spark.cli", "--store", url, "consume", "orders"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


# Topics


def test_topics_are_created_listed_described_altered_and_deleted(run_json: Run):
    assert (
        run_json("topic", "create", "clicks", "--partitions", "3", "--capacity", "10")["partitions"]
        == 3
    )
    assert {t["topic"]: t["rows"] for t in run_json("topic", "list")} == {"orders": 3, "clicks": 0}
    assert run_json("topic", "describe", "clicks")["settings"]["capacity"] == 10
    altered = run_json("topic", "alter", "clicks", "--partitions", "5", "--capacity", "20")
    assert (altered["partitions"], altered["settings"]["capacity"]) == (5, 20)
    assert run_json("topic", "delete", "clicks") == {"deleted": "clicks"}
    assert [t["topic"] for t in run_json("topic", "list")] == ["orders"]


def test_creating_a_topic_again_fails_unless_asked_for(run: Run, fail: Run):
    assert "orders" in fail("topic", "create", "orders")
    again = run("topic", "create", "orders", "--partitions", "2", "--if-not-exists")
    assert again == "topic orders exists with 2 partition(s)\n"
    made = run("topic", "create", "fresh", "--if-not-exists")
    assert made == "created topic fresh with 1 partition(s)\n"


def test_topic_is_described_for_people(run: Run):
    lines = run("topic", "describe", "orders").splitlines()
    assert lines[0] == "name: orders"
    assert lines[-3].split() == ["partition", "start", "end", "rows"]
    assert lines[-2].split() == ["0", "0", "3", "3"]


def test_altering_nothing_is_wrong_usage(url: str):
    assert main(["topic", "alter", "orders", "--store", url]) == 2


def test_empty_list_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with kmq.open(tmp_path / "empty"):
        pass
    assert main(["topic", "list", "--store", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out == "nothing\n"


# Records


def test_values_of_the_command_line_are_sent(run: Run, run_json: Run):
    sent = run_json("produce", "orders", "x", "y", "--key", "k")
    assert sent == {"topic": "orders", "records": 2}
    assert run("consume", "orders", "--separator", "=").count("k=") == 2


def test_lines_of_the_input_are_sent(run: Run, monkeypatch: pytest.MonkeyPatch):
    run("topic", "create", "lines")
    _stdin(monkeypatch, b"k1:v1\nno key\r\n\nk2:v:2\n")
    assert run("produce", "lines", "--separator", ":") == "sent 4 record(s) to lines\n"
    assert run("consume", "lines") == "v1\nno key\n\nv:2\n"


def test_many_lines_are_sent_in_their_order(run: Run, monkeypatch: pytest.MonkeyPatch):
    run("topic", "create", "many")
    lines = b"".join(b"%d\n" % number for number in range(2_500))
    _stdin(monkeypatch, lines)
    run("produce", "many")
    assert run("consume", "many").encode() == lines


def test_a_line_is_sent_before_the_next_one_comes(run: Run, url: str):
    run("topic", "create", "trickle")
    command = [sys.executable, "-m", "kmq_spark.cli", "produce", "trickle", "--store", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process, kmq.open(url) as store:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        (record,) = store.consumer(topics=["trickle"]).consume(1, 60)
        assert record.value == b"first"
        process.stdin.close()
        assert process.wait(60) == 0


def test_producing_to_a_missing_topic_is_one_clear_line(
    fail: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert "Topic[nope] doesn't exist" in fail("produce", "nope", "x")
    _stdin(monkeypatch, b"")
    assert "[nope] doesn't exist" in fail("produce", "nope")
    assert "doesn't exist" in fail("produce", "t", "x", store=str(tmp_path / "mistyped"))
    assert not (tmp_path / "mistyped").exists()


def test_records_are_printed_as_json_lines(run: Run):
    records = [json.loads(line) for line in run("consume", "orders", "--json").splitlines()]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert [record["value"] for record in records] == ["1", "2", "3"]
    assert records[0].keys() == {
        *("topic", "partition", "offset", "timestamp", "key", "value", "headers", "properties"),
    }


def test_values_that_are_no_text_are_printed_as_they_are_and_as_base64(url: str):
    command = [sys.executable, "-m", "kmq_spark.cli", "--store", url, "consume", "binary"]
    with kmq.open(url) as store, store.producer() as producer:
        store.create_topic("binary")
        producer.send("binary", b"\xff\x00")
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"\xff\x00\n"
    printed = subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
    assert json.loads(printed)["value"] == {"base64": "/wA="}


def test_consuming_stops_after_the_number_asked_for(run: Run):
    assert run("consume", "orders", "--max", "2") == "1\n2\n"


def test_group_goes_on_where_it_stopped(run: Run):
    assert run("consume", "orders", "--group", "g", "--max", "1") == "1\n"
    assert run("consume", "orders", "--group", "g", "--max", "1") == "2\n"


def test_following_waits_for_more_records(url: str):
    command = [sys.executable, "-m", "kmq_spark.cli", "--store", url]
    follower = subprocess.Popen(
        [*command, "consume", "orders", "--follow", "--max", "4", "--json"], stdout=subprocess.PIPE
    )
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(3)]
    with kmq.open(url) as store, store.producer() as producer:
        producer.send("orders", b"later", partition=0)
    rest, _ = follower.communicate(timeout=30)
    assert len(seen) == 3
    assert json.loads(rest)["value"] == "later"
    assert follower.returncode == 0


def test_interrupt_ends_following_at_once_and_quietly(url: str):
    command = [sys.executable, "-m", "kmq_spark.cli", "--store", url]
    follower = subprocess.Popen(
        [*command, "consume", "orders", "--follow", "--group", "g"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
    follower.send_signal(signal.SIGINT)
    rest, errors = follower.communicate(timeout=60)  # else it would follow for ever
    assert (follower.returncode, rest, errors) == (130, b"", b"")


# Copies


def test_a_store_is_copied_and_cloned(run_json: Run, fail: Run, url: str, tmp_path: Path):
    assert run_json("copy", url, str(tmp_path / "copy"))["rows"] == 3
    assert run_json("clone", url, str(tmp_path / "clone"), "--read-only")["rows"] == 3
    with kmq.open(tmp_path / "clone") as clone, pytest.raises(kmq.IllegalStateError):
        clone.create_topic("t")
    assert "exists already" in fail("clone", url, str(tmp_path / "clone"))


# Groups


def test_groups_are_set_described_copied_listed_and_deleted(run_json: Run):
    committed = run_json("group", "set", "g", "--to", "earliest", "--topic", "orders")["committed"]
    assert committed == {"orders": {"0": 0, "1": 0}}
    assert run_json("group", "describe", "g")["lag"] == {"orders": {"0": 3, "1": 0}}
    run_json("group", "set", "g", "--to", '{"orders": {"0": 2}}')
    run_json("group", "copy", "g", "h")
    assert {g["group"]: g["lag"] for g in run_json("group", "list")} == {"g": 1, "h": 1}
    assert run_json("group", "delete", "g") == {"deleted": "g"}
    assert [g["group"] for g in run_json("group", "list")] == ["h"]


def test_group_is_set_to_an_instant(run_json: Run):
    target = "2000-01-01T00:00:00+00:00"
    committed = run_json("group", "set", "g", "--to", target, "--topic", "orders")["committed"]
    assert committed["orders"]["0"] == 0


def test_group_is_described_for_people(run: Run):
    run("group", "set", "g", "--to", "earliest", "--topic", "orders")
    lines = run("group", "describe", "g").splitlines()
    assert lines[1].split() == ["topic", "partition", "committed", "end", "lag"]
    assert lines[2].split() == ["orders", "0", "0", "3", "3"]


def test_a_group_is_described_with_its_members(run: Run, url: str):
    with kmq.open(url) as store, store.consumer("g", topics=["orders"], name="me"):
        lines = run("group", "describe", "g").splitlines()
    assert lines[:2] == [
        "group g, generation 1, 1 member(s)",
        "member  epoch  client" + lines[1].partition("client")[2],
    ]
    assert lines[2].split()[:2] == ["me", "1"]
    assert lines[2].split()[-1] == "orders:0,1"
    assert lines[4].split() == ["orders", "0", "-", "3", "3"]


@pytest.mark.parametrize("target", ["yesterday", "{", '{"orders": 3}', '{"orders": {"a": "b"}}'])
def test_wrong_target_of_a_group_is_wrong_usage(target: str, url: str):
    assert main(["group", "set", "g", "--to", target, "--store", url]) == 2


def test_offset_beyond_the_log_is_one_clear_line(fail: Run):
    assert "orders" in fail("group", "set", "g", "--to", '{"orders": {"0": 99}}')


# The commit log


def test_commits_are_printed_in_their_order(run: Run):
    commits = [json.loads(line) for line in run("log", "--json").splitlines()]
    lsns = [commit["lsn"] for commit in commits]
    assert lsns == list(range(lsns[0], lsns[0] + len(lsns)))
    kinds = [entry["kind"] for commit in commits for entry in commit["entries"]]
    assert {"topic", "records"} <= set(kinds)
    records = next(e for c in commits for e in c["entries"] if e["kind"] == "records")
    assert (records["topic"], records["partition"], records["rows"]) == ("orders", 0, 3)


def test_commits_are_printed_from_one_on_and_up_to_a_number(run: Run):
    everything = run("log").splitlines()
    second = everything[1].split()[0]
    assert run("log", "--from", second, "--max", "1").splitlines() == everything[1:2]


# The demo, and the values printed


def test_demo_gets_the_store_that_was_named_but_never_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    import kmq_spark.demo.run

    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(kmq_spark.demo.run, "main", lambda *given: calls.append(given) or 0)
    monkeypatch.setenv("KMQ_STORE", "precious")
    assert main(["demo", "--quick"]) == 0
    assert main(["demo", "--store", "elsewhere", "--json"]) == 0
    # It begins by clearing its store, so a store has to be named for that.
    assert calls == [(None, False, True), ("elsewhere", True, False)]


def test_bytes_are_text_where_they_can_be():
    assert plain(b"text") == "text"
    assert base64.b64decode(plain(b"\xff\x00")["base64"]) == b"\xff\x00"


def test_numbers_that_json_does_not_have_are_text():
    values = [float("nan"), float("inf"), -float("inf"), 1.5]
    assert plain(values) == ["NaN", "Infinity", "-Infinity", 1.5]


def test_parser_reads_no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KMQ_STORE", "x")
    assert _parser().parse_args(["topic", "list"]).store is None
    assert os.environ["KMQ_STORE"] == "x"
