"""`kmq log find`, `replay` and `trace`: what they print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main

T0 = datetime(2026, 1, 1, tzinfo=UTC)
Run = Callable[..., str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with five records of topic `orders`, a minute apart, and an empty topic `again`."""
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        store.create_topic("orders")
        store.create_topic("again")
        with store.producer() as producer:
            for n in range(5):
                producer.send(
                    "orders", b"value %d" % n, b"even" if n % 2 == 0 else None,
                    timestamp=T0 + timedelta(minutes=n),
                    properties={"n": n, "text": str(n), "half": n / 2, "odd": n % 2 == 1},
                    headers={"MessageId": f"m={n}"},
                )  # fmt: skip
    return url


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["--key", "even"], [0, 2, 4]),
        (["--key", "even", "--max", "2"], [0, 2]),
        (["--max", "0"], []),
        (["--property", "n=3"], [3]),
        (["--property", "text=3"], []),
        (["--property", 'text="3"'], [3]),
        (["--property", "half=1.5"], [3]),
        (["--property", "odd=true"], [1, 3]),
        (["--property", "odd=true", "--property", "n=1"], [1]),
        (["--property", "text=[3]"], []),
        (["--header", "MessageId=m=2"], [2]),
        (["--id", "orders:0:3"], [3]),
        (["--id", "orders:0:3", "--key", "even"], []),
        (["--id", "orders:0:5"], []),
        (["--since", "2026-01-01T00:02:00+00:00", "--until", "2026-01-01T01:04:00+01:00"], [2, 3]),
    ],
)
def test_records_are_found(run: Run, words: list[str], found: list[int]):
    lines = [
        json.loads(line) for line in run("log", "find", "orders", *words, "--json").splitlines()
    ]
    assert [line["offset"] for line in lines] == found


def test_a_record_is_printed_with_its_place(run: Run):
    assert run("log", "find", "orders", "--max", "2").splitlines() == [
        "orders-0:0  2026-01-01T00:00:00+00:00  even  value 0",
        "orders-0:1  2026-01-01T00:01:00+00:00  -  value 1",
    ]


def test_records_are_replayed(run: Run):
    assert run("log", "replay", "orders", "again", "--key", "even") == (
        "sent 3 record(s) of orders to again\n"
    )
    assert "value 4" in run("log", "find", "again", "--header", "MessageId=m=4")
    fact = json.loads(run("log", "replay", "orders", "again", "--property", "n=1", "--json"))
    assert fact == {"topic": "orders", "target": "again", "records": 1}
    once = ["log", "replay", "orders", "again", "--group", "night", "--json"]
    assert [json.loads(run(*once))["records"] for _ in range(2)] == [5, 0]


def test_records_are_replayed_to_a_queue_and_found_there_with_their_paths(run: Run, url: str):
    with kmq.open(url) as store:
        store.create_queue("again")  # as one of the topics is called, too
        words = ["log", "replay", "orders", "again", "--queue", "--key", "even"]
        assert run(*words) == "sent 3 record(s) of orders to again\n"
        assert store.queue("again").receive()[0].key == b"even"
    for words in (["--key", "even", "--max", "1"], ["--id", "queue:again:0:0"]):
        found = json.loads(run("log", "find", "again", "--queue", *words, "--json"))
        assert (found["topic"], found["offset"]) == ("queue:again", 0)
    steps = json.loads(run("log", "trace", "again", "0", "0", "--queue", "--json"))
    assert [step["event"] for step in steps] == ["sent", "delivered"]


def test_the_path_of_a_record_is_printed(run: Run, url: str):
    with kmq.open(url) as store:
        store.set_group_offsets("audit", {"orders": {0: 3}})
    steps = json.loads(run("log", "trace", "orders", "0", "2", "--json"))
    assert [step["event"] for step in steps] == ["sent", "passed"]
    assert steps[1]["facts"] == {"group": "audit", "committed": 3}
    assert "audit" in run("log", "trace", "orders", "0", "2").splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ["log", "find"],
        ["log", "find", "orders", "--property", "n"],
        ["log", "find", "orders", "--header", "n"],
        ["log", "find", "orders", "--since", "yesterday"],
        ["log", "find", "orders", "--since", "2026-01-01T00:00:00"],
        ["log", "find", "orders", "--max", "-1"],
        ["log", "replay", "orders"],
        ["log", "trace", "orders", "0"],
        ["log", "search", "orders"],
    ],
)
def test_a_wrong_call_ends_with_2(words: list[str], url: str):
    assert main([*words, "--store", url]) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["log", "find", "nothing"], "Topic[nothing]"),
        (["log", "find", "orders", "--property", "=1"], "property name"),
        (["log", "find", "orders", "--property", f"n={2**63}"], "property n"),
        (["log", "find", "orders", "--id", "orders:9:0"], "Partition[orders-9]"),
        (["log", "find", "orders", "--id", "again:0:0"], "--id must be orders:PARTITION:OFFSET"),
        (["log", "find", "orders", "--id", "m-4"], "--id must be orders:PARTITION:OFFSET"),
        (["log", "replay", "orders", "nothing"], "Topic[nothing]"),
        (["log", "trace", "orders", "0", "5"], "offset 5"),
    ],
)
def test_an_operational_error_is_one_line_and_ends_with_1(
    words: list[str], named: str, url: str, capsys: pytest.CaptureFixture[str]
):
    assert main([*words, "--store", url]) == 1
    printed = capsys.readouterr()
    assert named in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
