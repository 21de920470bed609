"""Commands that documents show: each has a test that runs it, or is one its program understands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.__main__ import parse
from benchmarks.figures import GROUPS
from benchmarks.report import case_of
from kmq_spark.cli.table import COMMANDS
from tests.support.sources import ROOT, named_tests
from tests.unit.test_readme import DOCUMENTS

_FENCED = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_BEGINS = re.compile(r"([A-Z_]+=\S+ )?(\.venv/bin/)?(kmq [a-z]|python -m |pytest )")

_README = ("tests/unit/test_readme.py", "test_shell_of_the_readme_runs")
_CLI = "tests/unit/test_cli.py"
_QUEUE = "tests/unit/queues/test_queue_command.py"
#: Which test runs each command of `kmq` that a document shows: its file, and how its name begins.
RUN_BY = {
    "archive": ("tests/spark/test_archive_command.py", "test_the_command_archives_what_is_new"),
    "bench": _README,
    "clone": (_CLI, "test_a_store_is_copied_and_cloned"),
    "consume": _README,
    "copy": (_CLI, "test_a_store_is_copied_and_cloned"),
    "demo": (_CLI, "test_demo_gets_the_store_that_was_named"),
    "doctor": ("tests/unit/test_doctor.py", "test_json_holds_every_check"),
    "group delete": (_CLI, "test_groups_are_set_described_copied_listed_and_deleted"),
    "group describe": _README,
    "group list": (_CLI, "test_groups_are_set_described_copied_listed_and_deleted"),
    "group set": (_CLI, "test_groups_are_set_described_copied_listed_and_deleted"),
    "log": _README,
    "log find": ("tests/unit/test_cli_finding.py", "test_records_are_found"),
    "log replay": ("tests/unit/test_cli_finding.py", "test_records_are_replayed"),
    "log trace": ("tests/unit/test_cli_finding.py", "test_the_path_of_a_record_is_printed"),
    "maintain": ("tests/unit/test_cli_maintain.py", "test_maintain_goes_on_until_it_is"),
    "queue bind": (_QUEUE, "test_topics_are_bound_with_a_filter_and_unbound"),
    "queue create": (_QUEUE, "test_a_queue_is_created_listed_described_and_deleted"),
    "queue list": (_QUEUE, "test_a_queue_is_created_listed_described_and_deleted"),
    "queue redrive": (_QUEUE, "test_dead_letters_are_moved_back"),
    "repair": ("tests/damage/test_repair.py", "test_the_command_repairs_and_ends_with_0"),
    "serve": ("tests/e2e/test_serve.py", "test_it_serves_from_its_line_on"),
    "stats": _README,
    "topic alter": ("tests/unit/test_cli_topic.py", "test_every_setting_of_a_topic_can_be_given"),
    "topic create": _README,
    "topic list": (_CLI, "test_topics_are_created_listed_described_altered_and_deleted"),
    "verify": ("tests/damage/test_verify.py", "test_the_command_ends_with_1"),
}


def _shown() -> Iterator[str]:
    """The commands in blocks and in the text of all documents, without comments."""
    for path in DOCUMENTS:
        text = path.read_text()
        lines = [line for block in _FENCED.findall(text) for line in block.splitlines()]
        for shown in (*lines, *_INDENTED.findall(text), *_INLINE.findall(text)):
            if (begin := _BEGINS.match(shown)) is not None:
                yield (
                    begin[0].replace(".venv/bin/", "") + shown[begin.end() :].split(" #")[0].strip()
                )


SHOWN = sorted(set(_shown()))
OF_PYTHON = [command for command in SHOWN if "python -m " in command]


def _verb(command: str) -> str:
    """Which command of `kmq` a line names; a line that names none stays as it is."""
    names = [each.name for each in COMMANDS if f"{command} ".startswith(f"kmq {each.name} ")]
    return max(names, key=len, default=command)


def test_a_test_runs_each_command_of_kmq_that_is_shown():
    verbs = {_verb(command) for command in SHOWN if command.startswith("kmq ")}
    assert verbs == set(RUN_BY)
    missing = [
        f"{file}::{begin}"
        for file, begin in RUN_BY.values()
        if not any(test.startswith(begin) for test in named_tests(file))
    ]
    assert missing == []


@pytest.mark.parametrize("command", OF_PYTHON)
def test_a_module_that_is_shown_knows_the_options_that_are_shown(command: str):
    module, *given = command.partition("python -m ")[2].split()
    if module == "tests.spark.parity":
        pytest.importorskip("confluent_kafka")  # the peer's client is no part of `dev`
    known = _help_of(module)
    assert [option for option in given if option.startswith("--") and option not in known] == []


@cache
def _help_of(module: str) -> str:
    """What a module says of its options: many commands that are shown are of one module."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    "arguments", [c.split()[3:] for c in OF_PYTHON if c.startswith("python -m benchmarks ")]
)
def test_groups_of_benchmarks_that_are_shown_can_be_measured(arguments: list[str]):
    assert set(parse(arguments).groups) <= set(GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_figures_of_benchmarks_are_made_of_cases_of_their_group(name: str):
    metrics = [each for figure in GROUPS[name].figures for each in (figure.ours, figure.peer)]
    cases = {case_of(name, metric)[0] for metric in metrics if isinstance(metric, str)}
    assert cases <= set(GROUPS[name].cases)


def test_the_page_of_benchmarks_lists_the_groups_that_run_without_being_named():
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    listed = re.search(r"# some groups: (.*)", text)
    assert listed is not None
    assert listed[1].split() == [name for name, group in GROUPS.items() if not group.by_name]


@pytest.mark.parametrize(
    ("seeds", "options"),
    [("", ["--seeds", "2"]), ("", ["--both", "--seeds", "2"]), ("7", []), ("7", ["--bucket"])],
)
def test_the_simulation_runs_as_it_is_shown(seeds: str, options: list[str]):
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        cwd=ROOT,
        env={**os.environ, "KMQ_SIM_SEEDS": seeds},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("0 of ")


def test_calls_of_pytest_name_folders_and_marks_that_there_are():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    marks = {each.partition(":")[0] for each in settings["ini_options"]["markers"]}
    calls = [command.partition("pytest ")[2] for command in SHOWN if "pytest " in command]
    assert len(calls) > 3
    for call in calls:
        named = re.search(r"-m (?:\"(.*)\"|(\S+))", call)
        chosen = re.findall(r"\w+", (named[1] or named[2]) if named else "")
        assert set(chosen) - {"not", "and", "or"} <= marks
        folders = re.findall(r"tests/\S+", call)
        assert [folder for folder in folders if not Path(ROOT, folder).exists()] == []
