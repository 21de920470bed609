"""What pip installs: the wheel's contents and its metadata."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.support.sources import ROOT, package_sources


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    target = tmp_path_factory.mktemp("wheel")
    # Straight through the build backend: needs no network and no environment of its own.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with zipfile.ZipFile(next(target.glob("*.whl"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith("dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_wheel_holds_every_module_of_both_packages(wheel: zipfile.ZipFile):
    expected = {
        f"{source.module.replace('.', '/')}{suffix}"
        for source in package_sources()
        for suffix in (["/__init__.py"] if source.path.name == "__init__.py" else [".py"])
    }
    assert expected - set(wheel.namelist()) == set()


def test_wheel_holds_the_module_that_spark_looks_for_at_its_top(wheel: zipfile.ZipFile):
    names = wheel.namelist()
    assert "pyspark_kmq.py" in names
    assert not any("_autoload" in name for name in names)


def test_wheel_holds_nothing_but_packages_and_metadata(wheel: zipfile.ZipFile):
    tops = {Path(name).parts[0].split("-")[0] for name in wheel.namelist()}
    assert tops == {"kmq_spark", "kmq_storage", "pyspark_kmq.py"}


def test_wheel_marks_both_packages_as_typed(wheel: zipfile.ZipFile):
    assert {"kmq_spark/py.typed", "kmq_storage/py.typed"} <= set(wheel.namelist())


def test_metadata_names_the_extras_of_the_readme(metadata: Message):
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "spark",
        "delta",
        "cloud",
        "demo",
        "dev",
    }


def test_base_install_needs_no_spark(metadata: Message):
    requirements = metadata.get_all("Requires-Dist", [])
    base = [item for item in requirements if "extra ==" not in item]
    names = {item.split(">")[0].split("=")[0].strip() for item in base}
    assert names == {"pyarrow", "fsspec", "numpy", "awscrt", "cronsim"}


def test_wheel_installs_the_command(wheel: zipfile.ZipFile):
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "kmq = kmq_spark.cli:main" in wheel.read(name).decode()


def test_installed_pyspark_module_needs_nothing_that_may_be_missing(tmp_path: Path):
    source = ROOT / "kmq_spark" / "_autoload" / "pyspark_kmq.py"
    (tmp_path / "pyspark_kmq.py").write_bytes(source.read_bytes())
    (tmp_path / "kmq_spark.py").write_text("raise ImportError('broken')")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import pyspark_kmq; print(dir(pyspark_kmq))"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DefaultSource" not in done.stdout
    assert "can't be loaded" in done.stderr
