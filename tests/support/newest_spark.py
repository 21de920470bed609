"""An environment with the newest Spark that kmq allows; the suite has the one that Delta allows."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent.parent / "pyproject.toml"


def python_of_newest_spark() -> str:
    """The interpreter of that environment, which is made once per machine (1 GB).

    CalledProcessError when it can't be installed.
    """
    wanted = _requirements()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kmq-tests"
    facts = (sys.version_info[:2], wanted)
    home = cache / f"newest-spark-{sha256(repr(facts).encode()).hexdigest()[:16]}"
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache))
        subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
        pip = [str(made / "bin" / "python"), "-m", "pip", "install", "-q", *wanted]
        subprocess.run(pip, check=True, capture_output=True, text=True)
        with suppress(OSError):  # another process was faster
            made.rename(home)
    return str(home / "bin" / "python")


def _requirements() -> list[str]:
    """What kmq needs, what Spark needs, and what the tests do."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["spark"], "pytest"]
