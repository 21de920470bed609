"""Delta's jars: what can't be fetched in time is done without."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kmq_spark.demo import delta_jars


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delta_jars, "version", {"delta-spark": "4.4.0", "pyspark": "4.2.0"}.get)


def test_jars_of_an_earlier_run_are_taken_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delta_jars, "_TIME_LIMIT", 0)
    folder = tmp_path / "delta-4.4.0-spark-4.2.0"
    folder.mkdir()
    (folder / "complete").touch()
    (folder / "delta-spark.jar").touch()
    assert delta_jars.fetch(tmp_path) == [folder / "delta-spark.jar"]


def test_jars_of_another_version_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    folder = tmp_path / "delta-4.3.0-spark-4.2.0"
    folder.mkdir()
    (folder / "complete").touch()
    (folder / "delta-spark.jar").touch()
    assert delta_jars.fetch(tmp_path) == []


def test_without_delta_spark_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(delta_jars, "version", version)
    assert delta_jars.fetch(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(delta_jars, "_TIME_LIMIT", 0.2)
    started = time.monotonic()
    assert delta_jars.fetch(tmp_path / "jars") == []
    assert time.monotonic() - started < 30
    assert list((tmp_path / "jars").rglob("complete")) == []
