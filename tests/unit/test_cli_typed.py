"""The `kmq` command over typed topics: what it prints of schemas and of values."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.cli import main

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("price", pa.decimal128(5, 2)),
        ("day", pa.date32()),
    ]
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a typed topic of a record and a tombstone."""
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        store.create_topic("t", schema=SCHEMA)
        with store.producer() as producer:
            producer.send("t", {"id": 1, "price": Decimal("1.5"), "day": date(2024, 1, 2)}, "k")
            producer.send("t", None, "k")
    return url


def test_describe_shows_the_columns(url: str, capsys: pytest.CaptureFixture[str]):
    assert main(["topic", "describe", "t", "--store", url, "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["schema"] == {
        "id": "int32 not null",
        "price": "decimal128(5, 2)",
        "day": "date32[day]",
    }
    assert "schemas" not in settings


def test_consume_prints_values_as_json(url: str, capsys: pytest.CaptureFixture[str]):
    assert main(["consume", "t", "--store", url]) == 0
    value, tombstone = capsys.readouterr().out.splitlines()
    assert json.loads(value) == {"id": 1, "price": "1.50", "day": "2024-01-02"}
    assert tombstone == ""
    assert main(["consume", "t", "--store", url, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["value"] for record in records] == [json.loads(value), None]


def test_produce_is_refused_with_one_clear_line(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"text\n")))
    assert main(["produce", "t", "--store", url]) == 1
    assert "topic t is typed" in capsys.readouterr().err
