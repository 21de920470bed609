"""Make a golden store anew: `python -m tests.data make_golden_keyed FOLDER`.

Each was run once. What it made then must stay readable for ever: the files in the folders
`format-*` are never made again.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    module, folder = sys.argv[1:]
    import_module(f"tests.data.{module}").make(Path(folder))
