"""Finds what breaks on a Spark that is not the one this suite runs on.

KMQ_SPARKS names the interpreters of environments with another pyspark, and `:` between them. Such a
one needs pyspark, pandas, grpcio, grpcio-status, googleapis-common-protos, zstandard, pytest and
what kmq itself needs; kmq is taken from this checkout.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent.parent
OTHERS = [each for each in os.environ.get("KMQ_SPARKS", "").split(":") if each]


@pytest.mark.skipif(not OTHERS, reason="KMQ_SPARKS names no environment with another Spark")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("python", OTHERS or [""])
def test_the_small_matrix_holds_on_other_sparks(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-m", "tests.spark.small_matrix", str(tmp_path)],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "PYTHONPATH": os.pathsep.join(map(str, _roots())),
            "PYSPARK_PYTHON": python,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "everything holds on Spark" in done.stdout, done.stderr[-4_000:]


def _roots() -> list[Path]:
    return [ROOT, ROOT / "storage", ROOT / "kmq_spark" / "_autoload"]
