"""Arguments and streams at their edges end with the exit code that is promised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main


def _kmq(folder: Path, words: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a shell runs it, on a store of this folder."""
    command = f"{sys.executable} -m kmq_spark.cli {words} --store {folder}/store"
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        "log --max -1",
        "log --from -1",
        "produce t --separator ''",
        "produce t --separator : --key k",
        "maintain --interval nan",
        "maintain --interval -1",
    ],
)
def test_a_number_or_text_that_makes_no_sense_is_wrong_usage(tmp_path: Path, words: str):
    done = _kmq(tmp_path, words)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)


def test_what_is_no_utf8_is_stored_as_it_was_typed(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    done = _kmq(tmp_path, r"produce t $'\xff\xfe' --key $'\xfd'")
    assert (done.returncode, done.stderr) == (0, b"")
    with kmq.open(tmp_path / "store") as store, store.consumer(topics=["t"]) as consumer:
        (record,) = consumer.consume(1)
    assert (record.key, record.value) == (b"\xfd", b"\xff\xfe")


def test_a_value_that_can_not_be_stored_is_told_by_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t", max_record_bytes=3)
    words = ["produce", "t", "one", "large", "two", "--store", str(tmp_path / "store")]
    assert main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kmq produce: value 2: record of 5 bytes is too large")
    assert line.endswith("; 1 value(s) behind it are stored")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-"])
def test_a_closed_stream_is_as_one_that_leads_nowhere(tmp_path: Path, closed: str):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    words = "produce t" if closed == "<&-" else "topic list"
    command = f"{sys.executable} -m kmq_spark.cli {words} --store {tmp_path}/store {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_group_does_not_move_over_records_that_a_closed_stream_kept_from_everybody(
    tmp_path: Path,
):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
        store.producer().send_batch("t", [b"1", b"2"]).result(10)
    for options in ("", "--json"):
        words = f"consume t --group g {options}"
        command = f"{sys.executable} -m kmq_spark.cli {words} --store {tmp_path}/store >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
        assert done.returncode == 1
        assert b"standard output is closed" in done.stderr
    assert _kmq(tmp_path, "consume t --group g").stdout == b"1\n2\n"


@pytest.mark.parametrize("offset", ["1.5", "true", '"2"'])
def test_an_offset_that_is_no_whole_number_is_a_wrong_call(tmp_path: Path, offset: str):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    done = _kmq(tmp_path, f'group set g --to \'{{"t": {{"0": {offset}}}}}\'')
    assert done.returncode == 2
    assert done.stderr.startswith(b"kmq group set: --to takes")


@pytest.mark.parametrize(
    "words",
    ["consume t --max -1", "consume t --max x", "archive a --watch -1", "archive a --keep nan"],
)
def test_numbers_of_the_command_line_that_mean_nothing_are_a_wrong_call(words: str):
    assert main(words.split()) == 2


def test_the_demo_says_on_its_first_line_why_it_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "mine.txt").write_text("not the demo's")
    assert main(["demo", "--store", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("kmq demo: ")


def test_a_copy_of_a_topic_that_is_not_there_makes_no_store(tmp_path: Path):
    kmq.open(tmp_path / "source").close()
    words = [str(tmp_path / "source"), str(tmp_path / "target"), "--topic", "orders"]
    assert main(["copy", *words]) == 1
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("t --key k v w", [b"v", b"w"]),
        ("--key k t v", [b"v"]),
        ("t v --key k w", [b"v", b"w"]),
        ("t --key k -- -x --y", [b"-x", b"--y"]),
        ("t --key k -", [b"-"]),
        ("t --key k -x", None),
        ("t v --unknown w", None),
    ],
)
def test_values_stand_before_options_and_behind_them(
    store_url: str, words: str, values: list[bytes] | None
):
    with kmq.open(store_url) as store:
        store.create_topic("t")
        code = main(["--store", store_url, "produce", *words.split()])
        with store.consumer(topics=["t"]) as consumer:
            found = [record.value for record in consumer.consume(timeout=0)]
    assert (code, found) == ((2, []) if values is None else (0, values))


def test_topics_stand_behind_options_of_a_queue_and_of_a_reader(
    store_url: str, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(store_url) as store:
        for name in ("t", "u"):
            store.create_topic(name)
            store.producer().send(name, name).result()
        assert main(["--store", store_url, "queue", "create", "q", "--order", "key", "t", "u"]) == 0
        assert [queue.topics for queue in store.queues()] == [["t", "u"]]
        assert main(["--store", store_url, "consume", "t", "--max", "9", "u"]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["t", "u"]
    assert main(["--store", store_url, "topic", "list", "t"]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("topic create t --partitions many", "must be a whole number from 1 on, not 'many'"),
        ("log --max 1.5", "must be a whole number from 0 on, not '1.5'"),
        ("topic alter t --retention 1h", "must be seconds from 0 on, as 3600, not '1h'"),
        ("queue create q --backoff 1,x", "must be seconds from 0 on, as 3600, not 'x'"),
        ("serve --port http", "must be a whole number from 0 on, not 'http'"),
        ("consume t -n 1", "usage: kmq consume "),
        ("consume t -n 1", "kmq consume: error: unrecognized arguments: -n 1"),
    ],
)
def test_wrong_usage_tells_what_the_command_takes(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


def test_an_empty_store_is_not_that_of_the_environment(
    store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(store_url) as store:
        store.create_topic("t")
    monkeypatch.setenv("KMQ_STORE", store_url)
    assert main(["topic", "delete", "t", "--store", ""]) == 2
    assert "argument --store: it is empty" in capsys.readouterr().err
    assert main(["topic", "describe", "t"]) == 0


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_who_creates_what_is_there_is_told_how_to_keep_it(
    store_url: str, kind: str, capsys: pytest.CaptureFixture[str]
):
    words = [kind, "create", "mine", "--store", store_url]
    assert [main(words), main(words), main([*words, "--if-not-exists"])] == [0, 1, 0]
    told = f"{kind.title()}[mine] exists already. --if-not-exists keeps it.\n"
    assert capsys.readouterr().err.endswith(told)


def test_a_delivery_whose_answers_were_noted_is_printed_with_its_queue_and_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(tmp_path, durability="os") as store, store.producer() as producer:
        store.create_queue("q")
        for _ in range(40):
            producer.send_to_queue("q", b"v").result(10)
        with store.queue("q") as queue:
            for _ in range(40):
                (delivery,) = queue.receive()
                delivery.ack()
    assert main(["log", "--json", "--store", str(tmp_path)]) == 0
    commits = map(json.loads, capsys.readouterr().out.splitlines())
    entries = [entry for commit in commits for entry in commit["entries"]]
    noted = [entry for entry in entries if entry["kind"] == "sealed_slip_acquire"]
    told = [entry for entry in entries if entry["kind"] == "slip_answer"]
    assert noted
    assert told
    for entry in noted:
        assert set(entry) >= {"client", "slip_id", "round", "boot"}
        assert {run[0] for run in entry["runs"]} == {entry["queue_id"]}
    assert all(entry["runs"] for entry in told)


def test_a_thing_has_one_member_for_its_name_in_each_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("a")
        store.create_queue("a", topics=["a"])
        store.set_group_offsets("a", "earliest", topics=["a"])
    for words in ("topic describe a", "queue describe a", "group describe a"):
        for each in (words, words.replace("describe a", "list")):
            assert main([*each.split(), "--json", "--store", str(tmp_path / "store")]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found[0] if isinstance(found, list) else found)["name"] == "a"


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["topic", "list", "--store", "mistyped"], "`kmq topic create` makes a store there"),
        (["produce", "nope", "x"], "`kmq topic list` shows which there are"),
        (["consume", "nope"], "`kmq topic list` shows which there are"),
        (["queue", "redrive", "nope"], "`kmq queue list` shows which there are"),
        (["group", "describe", "nope"], "`kmq group list` shows which there are"),
    ],
)
def test_who_names_what_is_not_there_is_told_what_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    way_out: str,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMQ_STORE", "store")
    kmq.open("store").close()
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "] doesn't exist. " in told
    assert way_out in told
    assert told.count("\n") == 1
