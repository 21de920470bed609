"""Commands to try after the demo, as the user can type them in the present folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NEXT = """
Try next:
  {kmq} topic list --store {store}
  {kmq} group describe delays --store {store}
  {kmq} consume delays --max 5 --store {store}
  in Spark:  spark.read.format("kmq").option("subscribe", "flights").load({place!r})
  in a notebook:  notebooks/quickstart.ipynb, the same path step by step"""


def next_steps(store: str) -> str:
    """Commands for the store in this folder, and where else to look."""
    place = near(store)
    return _NEXT.format(kmq=_command(), store=shlex.quote(place), place=place)


def near(path: str) -> str:
    """Return the shortest form of a path that can be typed here."""
    here = os.path.relpath(path)
    return path if here.startswith("..") else here


def _command() -> str:
    """Return `kmq` if the shell finds this installation's, else its path."""
    script = Path(sys.executable).parent / "kmq"
    found = shutil.which("kmq")
    if found is not None and script.exists() and script.samefile(found):
        return "kmq"
    if script.exists():
        return shlex.quote(near(str(script)))
    return f"{shlex.quote(near(sys.executable))} -m kmq_spark.cli"
