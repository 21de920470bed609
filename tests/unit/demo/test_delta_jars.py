"""Delta's jars: what can't be fetched in time is done without."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmq_spark.demo import delta_jars


def test_jars_of_an_earlier_run_are_taken_without_a_network(tmp_path: Path):
    (tmp_path / "complete").touch()
    (tmp_path / "delta-spark.jar").touch()
    assert delta_jars.fetch(tmp_path, time_limit=0) == [tmp_path / "delta-spark.jar"]


def test_without_java_there_are_no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert delta_jars.fetch(tmp_path / "jars") == []


def test_a_download_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert delta_jars.fetch(tmp_path / "jars", time_limit=0.2) == []
    assert not (tmp_path / "jars" / "complete").exists()
