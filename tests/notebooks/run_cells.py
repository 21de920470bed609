"""Runs a notebook's code cells in one namespace: `python run_cells.py NOTEBOOK NAME=JSON ...`.

The cell tagged `parameters` sets the notebook's values; those given here replace them right after.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any


def run_cells(notebook: Path, parameters: dict[str, Any]) -> None:
    """Execute the cells as the module `__main__`; the first error ends it, naming its cell."""
    namespace = types.ModuleType("__main__")
    sys.modules["__main__"] = namespace
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        code = compile("".join(cell["source"]), f"{notebook.name}#{cell['id']}", "exec")
        exec(code, vars(namespace))
        if "parameters" in cell["metadata"].get("tags", []):
            vars(namespace).update(parameters)


if __name__ == "__main__":
    given = (argument.partition("=") for argument in sys.argv[2:])
    run_cells(Path(sys.argv[1]), {name: json.loads(value) for name, _, value in given})
