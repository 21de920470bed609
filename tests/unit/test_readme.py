"""What the documents say is so: their code runs, their commands work, their links lead on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT, named_tests

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
CODE = (ROOT, ROOT / "kmq_spark", ROOT / "storage" / "kmq_storage")
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("storage/*.md")),
]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_of_the_readme_runs(folder: Path, capsys: pytest.CaptureFixture[str]):
    # With all that needs Spark it runs in tests/spark/test_pages.py.
    blocks = [block for block in _blocks("python") if "spark." not in block]
    exec(compile("\n".join(blocks), "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "0",
        "b'alice' b'42 EUR'",
        "5",
        "{'orders': {0: 0, 1: 2, 2: 2}}",
        "2",
        "(1, 3)",
        "5",
    ]


def test_shell_of_the_readme_runs(folder: Path):
    block = next(block for block in _blocks("sh") if block.startswith("export KMQ_STORE"))
    (folder / "bin").mkdir()
    command = folder / "bin" / "kmq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kmq_spark.cli "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", block],
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"home", "cart"} <= set(done.stdout.splitlines())
    assert "generation" in done.stdout


def test_the_two_commands_are_one_line_each():
    setups = [block for block in _blocks("sh") if "pip install" in block]
    assert len(setups) == 2
    assert all(block.count("\n") == 1 for block in setups)
    assert setups[0].rstrip().endswith("/kmq demo")


def test_ci_runs_the_second_command_of_the_readme():
    second = [block for block in _blocks("sh") if "pip install" in block][1].strip()
    assert second in (ROOT / ".ci" / "run").read_text().splitlines()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_page_with_examples_has_a_test_that_runs_them():
    shown = [path for path in DOCUMENTS if "\n```python" in path.read_text()]
    names = {str(path.relative_to(ROOT)) for path in shown}
    guides = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/guide/*.md")}
    # Those of the guides run in tests/unit/test_guides.py.
    with_spark = {f"docs/spark-{name}.md" for name in ("reading", "streaming", "tables")}
    assert names - guides == {"README.md", *with_spark}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path: Path):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
    local = [target for target in targets if not target.startswith(("http:", "https:"))]
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_every_file_named_in_the_architecture_exists():
    named = set(re.findall(r"`([a-z_/]+\.py)`", ARCHITECTURE.read_text()))
    assert len(named) > 10
    assert [n for n in sorted(named) if not any((f / n).exists() for f in CODE)] == []


def test_every_module_named_in_the_walks_exists():
    walks = re.search(r"## Three walks.*?```\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)
    assert walks is not None
    named = set(re.findall(r"[a-z_]+/[a-z_]+", walks[1]))
    packages = (CODE[1] / "client", CODE[1] / "datasource", CODE[2] / "log")
    places = [folder / name for folder in (*CODE, *packages) for name in named]
    there = {path for path in places if path.is_dir() or path.with_suffix(".py").exists()}
    assert len(named) > 10
    assert [n for n in sorted(named) if not any(path.match(f"*/{n}") for path in there)] == []


def _promises() -> list[str]:
    rows = [line for line in GUARANTEES.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith("| promise")]


def test_every_test_named_in_the_guarantees_exists():
    file, missing = "", []
    for row in _promises():
        for named, test in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", row):
            file = named or file
            missing += [f"{file}::{test}"] if test not in named_tests(file) else []
    assert file
    assert missing == []


def test_every_guarantee_names_a_test():
    assert _promises()
    assert [row for row in _promises() if "::" not in row] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_holds_two_versions_of_a_text(document: Path):
    found = re.findall(r"^(?:<{7} |={7}$|>{7} )", document.read_text(), re.MULTILINE)
    assert found == []
