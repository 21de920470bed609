"""The guides in docs/guide: their code runs, and prints what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

import kmq_spark as kmq
from kmq_spark.cli import main
from kmq_spark.cli.command_line import _parsed
from tests.support.sources import ROOT
from tests.unit.server.made import listening

GUIDES = ROOT / "docs" / "guide"
STATE = (
    "['topic', 'partition', 'offset', 'state', 'delivery_count', 'available_at', 'expires_at', "
    "'priority']"
)
#: What the code of each guide prints.
PRINTED = {
    "buckets": ["0", "1", "{0: (0, 1), 1: (0, 0), 2: (0, 0)}"],
    "groups": [
        "{'orders': [0, 1, 2, 3, 4, 5]}",
        "{'orders': [0, 1, 2]} {'orders': [3, 4, 5]}",
        "60",
        "{'orders': [4, 5]}",
        "giving away {'orders': [4, 5]}",
        "{'orders': [0, 1, 2, 3, 4, 5]}",
        "{'orders': [3, 4, 5]}",
        "{'orders': [0, 1, 2]}",
        "worker-b {'orders': [3, 4, 5]}",
        "worker-a {'orders': [0, 1, 2]}",
    ],
    "openmessaging": [
        "orders:0:0",
        "orders 42.0",
        "mails b'hello'",
        "b'hello'",
        "b'42 EUR'",
        "[b'42 EUR', b'1 EUR', b'2 EUR']",
        "b'42 EUR' 0 2",
    ],
    "finding": [
        "[b'0 EUR', b'3 EUR', b'6 EUR']",
        "3",
        "[b'4 EUR']",
        "2",
        "3",
        "3",
        "6",
        "0",
        "sent None",
        "passed again",
        "passed audit",
    ],
    "transactions": [
        "0 0",
        "no such account",
        "the transaction was aborted and nothing of it is stored: ValueError('no such account')",
        "{'orders': {0: 3, 1: 0}}",
        "3",
        "3",
        "{'orders': {0: 1}}",
        "debits",
    ],
    "typed-topics": [
        "['bun', 'milk', 'tea']",
        "int32",
        "column 'count' of topic sales is int32: 'two' is no int",
        "[None, None, None]",
        (
            "schema of topic sales can't change like this: column 'price' is missing; columns "
            "can't be dropped or renamed"
        ),
        "[('tea', None), ('milk', None), ('bun', None)]",
        "1",
        "{0: (0, 4)}",
    ],
    "v2": [
        "True",
        "KmqMessage(headers={'from': 'shop'}, body={'id': 1000, 'price': 6.51})",
        "None 1 0",
        "1000 None None",
        "None",
        "debit credit",
        "[True, True, False]",
        "3",
    ],
    "operations": [
        "{0: (100, 1000)}",
        "0",
        "903 records in 2 files",
        "1",
        "900",
        "902 records, damage: none",
        "{0: (100, 1000)}",
        "True []",
    ],
    "producing-and-consuming": [
        "orders 0",
        "2 1",
        "1000",
        "NotFoundError",
        "b'42 EUR' (('source', b'web'),)",
        "['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'headers', 'properties']",
        "0",
        "['key', 'offset']",
        "(0, 3)",
        "3",
    ],
    "queues": [
        "6 QueueStats(ready=0, locked=6, delayed=0, delivered=6, acked=0, dead=0, expired=0)",
        *(f"invoice over {number} EUR" for number in range(5)),
        "2",
        "too late: lease_expired",
        "[]",
        "no such customer",
        "orders",
        "1",
        "b'3 EUR'",
        "[b'urgent', b'usual']",
        "True",
        "1 0",
        "[b'150 EUR']",
        "[b'paid']",
        "Queue[answers-of-somebody-who-left] doesn't exist.",
        "b'4' {'question': 1}",
        "2",
        "9 6",
        STATE,
    ],
    "keyed-queues": [
        "0",
        "[b'hello', b'again']",
        "[]",
        "2",
        "['user/17', 'user/4']",
        "[]",
        "0",
        "(2, 3)",
        "[b'20.4']",
        "2 3",
        "0 b'you have mail'",
        "0",
        "1",
        "[b'you have mail', b'sent']",
    ],
    "serving": ["{'orders': {0: 2, 1: 0}}"],
    "orderly": [
        "orders 0 created",
        "the bank does not answer",
        "orders 0 paid",
        "orders 0 shipped",
        "{'orders': {0: 3}}",
        "b'not an order' 3",
        "ValueError: can't read b'not an order'",
        "{'orders': {0: 3, 1: 1}}",
        "3 () ()",
        "3 0",
    ],
}


def _code_of(name: str, language: str) -> str:
    text = (GUIDES / f"{name}.md").read_text()
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def _run(name: str, url: str = "") -> None:
    """Run the code of a guide; what its reader leaves to the end of Python is closed here."""
    names: dict[str, object] = {}
    code = _code_of(name, "python").replace("s3://acme/shop", url)
    try:
        exec(compile(code, f"{name}.md", "exec"), names)
    finally:
        for each in names.values():
            if isinstance(each, kmq.Store):
                each.close()


def _commands(name: str) -> list[list[str]]:
    return [shlex.split(line) for line in _code_of(name, "sh").splitlines() if line]


@pytest.mark.parametrize("name", sorted(path.stem for path in GUIDES.glob("*.md")))
def test_the_code_of_a_guide_runs(
    name: str,
    s3_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    _run(name, s3_url)
    assert capsys.readouterr().out.splitlines() == PRINTED[name]


def test_the_commands_of_a_guide_work_on_the_store_that_its_code_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with_commands = {path.stem for path in GUIDES.glob("*.md") if _code_of(path.stem, "sh")}
    assert with_commands == {"finding", "serving"}
    monkeypatch.chdir(tmp_path)
    _run("finding")
    monkeypatch.setenv("KMQ_STORE", "data/shop")
    for command in _commands("finding"):
        capsys.readouterr()
        assert main(command[1:]) == 0, command
        assert capsys.readouterr().out, f"{command} finds, replays or traces something"


def test_what_the_guide_of_serving_asks_for_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    _run("serving")
    serve, *asks = _commands("serving")
    arguments = _parsed(serve[1:])
    assert (arguments.command.name, arguments.port) == ("serve", 8765)
    with listening(arguments.store) as listener:  # at a free port
        for command, *headers, url in asks:
            asked = urlsplit(url)
            assert (command, asked.hostname, asked.port) == ("curl", "127.0.0.1", arguments.port)
            assert headers[:1] in ([], ["--header"])
            here = asked._replace(netloc=f"127.0.0.1:{listener.port}").geturl()
            asking = Request(here, headers=dict(text.split(": ") for text in headers[1:]))
            with urlopen(asking, timeout=60) as response:
                media_type = response.headers["Content-Type"]
                assert asking.get_header("Accept", media_type) == media_type
                assert response.read()
