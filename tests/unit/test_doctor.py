"""`kmq doctor` finds what is wrong, and says what to do about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kmq_spark.cli import main, runtime_checks
from kmq_spark.cli.disk_checks import check_folder, check_futex
from kmq_spark.cli.doctor import diagnose
from kmq_storage.objects import futex
from kmq_storage.objects.local import LocalDisk


def _java(folder: Path, version: str) -> str:
    """A JAVA_HOME whose java answers as that version does."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return str(folder)


def test_new_java_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, "21.0.7"))
    check = runtime_checks.check_java()
    assert (check.status, check.advice) == ("ok", "")
    assert check.found.startswith("21 ")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_old_java_is_named_with_advice(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAVA_HOME", _java(tmp_path, version))
    check = runtime_checks.check_java()
    assert check.status == "warn"
    assert "openjdk-17" in check.advice


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    check = runtime_checks.check_java()
    assert (check.status, check.found) == ("warn", "not found")
    assert all(word in check.advice for word in ("apt", "conda", "brew", "OpenJDK 17 or 21"))


def test_missing_java_does_not_fail_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    assert main(["doctor", "--store", str(tmp_path)]) == 0
    assert "doesn't start" in capsys.readouterr().out


def test_missing_library_is_fatal_only_where_all_need_it():
    assert runtime_checks.check_library("no-such", (1,), needed_by="kmq").status == "fail"
    assert runtime_checks.check_library("no-such", (1,), needed_by="Spark").status == "warn"


def test_old_library_is_named_with_the_version_that_is_needed():
    check = runtime_checks.check_library("pyarrow", (9999, 0, 0), needed_by="kmq")
    assert check.status == "fail"
    assert "9999.0.0" in check.advice


def test_other_worker_python_is_a_hint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/some-other-python")
    check = runtime_checks.check_worker_python()
    assert check.status == "warn"
    assert sys.executable in check.advice


def test_own_worker_python_is_fine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert runtime_checks.check_worker_python().status == "ok"


def test_folder_is_left_as_it_was(tmp_path: Path):
    store = tmp_path / "not" / "there"
    checks = check_folder(store)
    assert [check.name for check in checks] == ["folder", "file system", "link", "flock", "fsync"]
    assert {check.status for check in checks} <= {"ok", "warn"}
    assert list(tmp_path.iterdir()) == []


def test_file_as_store_is_refused(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    assert [check.status for check in check_folder(file)] == ["fail"]


def test_folder_that_can_not_be_written_is_refused():
    # Nobody may create a file there, not even root.
    assert [check.status for check in check_folder(Path("/proc/self"))] == ["fail"]


def test_disk_that_creates_a_name_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LocalDisk, "publish", lambda *_args, **_options: True)
    checks = {check.name: check for check in check_folder(tmp_path)}
    assert checks["link"].status == "fail"
    assert "local one" in checks["link"].advice


def test_locks_that_let_two_in_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class NoLock:
        def try_acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    monkeypatch.setattr(LocalDisk, "open_lock", lambda *_args: NoLock())
    checks = {check.name: check for check in check_folder(tmp_path)}
    assert checks["flock"].status == "fail"


def test_fsync_latency_is_measured(tmp_path: Path):
    check = next(check for check in check_folder(tmp_path) if check.name == "fsync")
    assert float(check.found.split()[0]) > 0


def test_kernel_without_futex_is_a_hint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(futex, "AVAILABLE", False)
    assert check_futex().status == "warn"


def test_store_in_memory_has_no_folder_to_check():
    names = {check.name for check in diagnose("memory://doctor")}
    assert names == {"python", "pyarrow", "java", "pyspark", "PYSPARK_PYTHON", "futex"}


def test_json_holds_every_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--store", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert {check["name"] for check in report["checks"]} >= {"python", "java", "folder", "fsync"}


def test_failed_check_gives_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "file"
    file.touch()
    assert main(["doctor", "--store", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
