"""Compiles what every message passes; where that can't be, kmq does the same in Python."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from sysconfig import get_config_var
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Of those that end in `.py` the same source runs with and without a compiler.
_SOURCES = (
    "kmq_spark/client/compiled/brief_lock.pyx",
    "kmq_spark/client/compiled/adding.pyx",
    "kmq_spark/client/compiled/packing.pyx",
    "kmq_spark/client/compiled/packed_rows.pyx",
    "kmq_spark/client/compiled/unpacking.pyx",
    "kmq_spark/openmessaging/key_value.py",
    "kmq_spark/openmessaging/message.py",
    "kmq_spark/openmessaging/stored.py",
)


class CompilingHook(BuildHookInterface):
    """Builds each module beside its source, also for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled modules to the wheel, or say that there are none."""
        try:
            with chdir(self.root):
                missing = [source for source in _SOURCES if not _is_compiled(Path(source))]
                for source in missing:  # an old one would be run if its source can't be compiled
                    _built(Path(source)).unlink(missing_ok=True)
                _compile(missing)
        except Exception as error:
            self.app.display_warning(f"kmq is not compiled, and slower: {error!r}")
            return
        # Not those that another version of Python left here.
        build_data["artifacts"] += [_built(Path(source)).as_posix() for source in _SOURCES]
        build_data["pure_python"], build_data["infer_tag"] = False, True


def _built(source: Path) -> Path:
    return source.with_suffix(get_config_var("EXT_SUFFIX"))


def _is_compiled(source: Path) -> bool:
    built = _built(source)
    sources = [source, *source.parent.glob("*.pxd")]
    return built.exists() and all(built.stat().st_mtime >= s.stat().st_mtime for s in sources)


def _compile(sources: list[str]) -> None:
    if not sources:
        return
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    modules = [
        # Without what a debugger needs, which is most of a module.
        Extension(os.path.splitext(s)[0].replace("/", "."), [s], extra_compile_args=["-g0"])
        for s in sources
    ]
    with TemporaryDirectory() as folder:
        modules = cythonize(
            modules,
            build_dir=folder,
            quiet=True,
            # Annotations are mypy's: what else comes gets kmq's own errors.
            compiler_directives={"language_level": 3, "annotation_typing": False},
        )
        command = build_ext(Distribution({"ext_modules": modules}))
        command.parallel = os.cpu_count()
        command.inplace, command.build_temp, command.build_lib = True, folder, folder
        command.ensure_finalized()
        command.run()
