"""Finds what breaks on a Spark that is not the one this suite runs on: on the newest one.

KMQ_SPARKS names the interpreters of environments with other ones instead, and `:` between them.
Such a one needs pyspark, pandas, grpcio, grpcio-status, googleapis-common-protos, zstandard, pytest
and what kmq itself needs; kmq is taken from this checkout.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.support.newest_spark import python_of_newest_spark
from tests.support.spark import miss

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
NEWEST = "newest"
OTHERS = [each for each in os.environ.get("KMQ_SPARKS", NEWEST).split(":") if each]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("python", OTHERS)
def test_the_small_matrix_holds_on_other_sparks(python: str, tmp_path: Path) -> None:
    chosen = _newest() if python == NEWEST else python
    done = subprocess.run(
        [chosen, "-m", "tests.spark.small_matrix", str(tmp_path)],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "PYTHONPATH": os.pathsep.join(map(str, _roots())),
            "PYSPARK_PYTHON": chosen,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "everything holds on Spark" in done.stdout, done.stderr[-4_000:]
    assert f"Spark {pyspark.__version__}" not in done.stdout, "it is the one of this suite"


def _newest() -> str:
    try:
        return python_of_newest_spark()
    except subprocess.CalledProcessError as error:
        miss(f"the newest Spark can't be installed: {error.stderr}")


def _roots() -> list[Path]:
    return [ROOT, ROOT / "storage", ROOT / "kmq_spark" / "_autoload"]
