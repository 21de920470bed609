"""`kmq queue`: what it prints, and what it leaves in the store."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main

Run = Callable[..., Any]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with topic `orders` of four records."""
    url = str(tmp_path / "store")
    with kmq.open(url) as store, store.producer() as producer:
        store.create_topic("orders")
        producer.send_batch("orders", [b"1", b"2", b"3", b"4"]).result()
    return url


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `kmq queue` and gives what it printed, as a value where that is JSON."""

    def run_command(*words: str) -> Any:
        assert main(["queue", *words, "--store", url]) == 0
        printed = capsys.readouterr().out
        return json.loads(printed) if "--json" in words else printed

    return run_command


def test_a_queue_is_created_listed_described_and_deleted(run: Run, url: str):
    create = ("create", "mails", "orders", "--order", "strict", "--lock-timeout", "5")
    made = run(*create, "--json")
    assert (made["topics"], made["settings"]["lock_timeout"]) == (["orders"], 5.0)
    assert run(*create, "--if-not-exists") == "queue mails exists\n"
    with kmq.open(url) as store:
        store.queue("mails").receive()[0].ack()
    (row,) = run("list", "--json")
    assert (row["queue"], row["topics"], row["ready"], row["acked"]) == ("mails", ["orders"], 3, 1)
    assert ["name", *run("list").splitlines()[0].split()] == list(row)
    described = run("describe", "mails").splitlines()
    assert described[:3] == ["queue: mails", "topics: orders", "lock_timeout: 5.0"]
    assert {"order: strict", "ready: 3"} <= set(described)
    assert run("delete", "mails", "--json") == {"deleted": "mails"}
    assert run("list", "--json") == []


def test_every_setting_of_a_queue_may_be_given(run: Run, url: str):
    given = ("--max-deliveries", "3", "--backoff", "0,2.5", "--uniq-window", "7", "--capacity", "9")
    settings = run("create", "mails", *given, "--dead-letter", "lost", "--json")["settings"]
    assert set(settings) == {*inspect.signature(kmq.Store.create_queue).parameters} - {
        "self",
        "name",
        "topics",
        "exist_ok",
    }
    assert (settings["backoff"], settings["uniq_window"]) == ([0.0, 2.5], 7.0)
    assert (settings["max_deliveries"], settings["capacity"]) == (3, 9)
    assert main(["queue", "create", "other", "--backoff", "1,x", "--store", url]) == 2


def test_a_topic_is_bound_from_an_instant_on(run: Run, url: str):
    run("create", "mails")
    run("bind", "mails", "orders", "--start", "2090-01-01T00:00:00+00:00")
    run("create", "all")
    run("bind", "all", "orders", "--start", "2020-01-01T00:00:00+00:00")
    ready = {row["queue"]: row["ready"] for row in run("list", "--json")}
    assert ready == {"all": 4, "mails": 0}
    assert main(["queue", "bind", "mails", "orders", "--start", "soon", "--store", url]) == 2


def test_topics_are_bound_with_a_filter_and_unbound(run: Run):
    run("create", "mails")
    run("bind", "mails", "orders", "--filter", "amount >= 100")
    facts = run("describe", "mails", "--json")
    assert (facts["topics"], facts["stats"]["ready"]) == (["orders"], 0)
    run("bind", "mails", "orders", "--start", "latest")
    assert run("unbind", "mails", "orders") == "queue mails reads orders no more\n"
    assert run("describe", "mails", "--json")["topics"] == []


def test_dead_letters_are_moved_back(run: Run, url: str):
    run("create", "mails", "orders")
    with kmq.open(url) as store:
        for held in store.queue("mails").receive(3):
            held.reject("no")
    assert run("redrive", "mails", "--max", "2", "--json")["records"] == 2
    assert run("redrive", "mails") == "moved 1 dead letter(s) back to queue mails\n"
    counts = {row["queue"]: row["ready"] for row in run("list", "--json")}
    assert counts == {"mails": 4, "mails.dlq": 0}


@pytest.mark.parametrize(
    "words", [["describe", "none"], ["redrive", "none"], ["bind", "none", "orders"]]
)
def test_a_queue_that_is_not_there_is_named(
    words: list[str], url: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["queue", *words, "--store", url]) == 1
    assert "none" in capsys.readouterr().err
