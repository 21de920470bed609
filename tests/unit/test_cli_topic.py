"""`kmq topic`: the settings that can be given, and taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kmq_spark.cli import main


def _settings(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    assert main(["--json", *command]) == 0
    settings: dict[str, Any] = json.loads(capsys.readouterr().out)["settings"]
    return settings


def test_every_setting_of_a_topic_can_be_given_and_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    topic = ("prices", "--store", str(tmp_path / "store"))
    options = ("--retention", "60", "--retention-bytes", "1000", "--cleanup", "compact")
    more = ("--compression", "zstd", "--uniq-window", "5", "--max-record-bytes", "100")
    made = _settings(capsys, "topic", "create", *topic, *options, *more)
    assert (made["retention"], made["retention_bytes"], made["cleanup"]) == (60, 1000, "compact")
    assert (made["compression"], made["uniq_window"], made["max_record_bytes"]) == ("zstd", 5, 100)
    options = ("--retention", "none", "--retention-bytes", "none", "--compression", "none")
    altered = _settings(capsys, "topic", "alter", *topic, *options, "--cleanup", "delete")
    assert (altered["retention"], altered["retention_bytes"]) == (None, None)
    assert (altered["compression"], altered["cleanup"]) == (None, "delete")


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_a_retention_that_is_no_time_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
):
    command = ["topic", "create", "t", f"--retention={value}", "--store", str(tmp_path)]
    assert main(command) == 2
    assert "--retention" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("topic create t --partitions 0", "--partitions: must be a whole number from 1 on"),
        ("topic alter t --partitions -1", "--partitions: must be a whole number from 1 on"),
        (
            "topic create t --max-record-bytes 0",
            "--max-record-bytes: must be a whole number from 1 on",
        ),
        ("topic create ../x", "TOPIC: topic name '../x' is not allowed"),
        ("queue create a/b", "QUEUE: queue name 'a/b' is not allowed"),
        ("topic create t --capacity 0", "--capacity: must be a whole number from 1 on"),
        (
            "topic create t --retention-bytes 0",
            "--retention-bytes: must be a whole number from 1 on",
        ),
        ("queue create q --max-deliveries 0", "--max-deliveries: must be a whole number from 1 on"),
        ("queue create q --capacity 0", "--capacity: must be a whole number from 1 on"),
        ("queue redrive q --max 0", "--max: must be a whole number from 1 on"),
    ],
)
def test_a_number_or_a_name_that_nothing_new_can_have_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, told: str
):
    assert main([*command.split(), "--store", str(tmp_path / "store")]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())
