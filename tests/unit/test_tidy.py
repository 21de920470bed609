"""The house style, where a program can judge it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.sources import (
    ROOT,
    Source,
    other_python_files,
    package_sources,
    public_definitions,
)

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400
LINE_LENGTH_MAX = 100
POSITIONAL_MAX = 5

SOURCES = package_sources()
FILES = [source.path for source in SOURCES] + other_python_files()
#: Spelled with classes of one letter, so that this file does not find itself.
MARKERS = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b")


def _name(item: Source | Path) -> str:
    path = item.path if isinstance(item, Source) else item
    return str(path.relative_to(ROOT))


each_source = pytest.mark.parametrize("source", SOURCES, ids=_name)
each_file = pytest.mark.parametrize("path", FILES, ids=_name)


@each_file
def test_no_file_is_longer_than_400_lines(path: Path):
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX


@each_file
def test_no_line_is_longer_than_100_characters(path: Path):
    long = [n for n, line in enumerate(_lines(path), 1) if len(line) > LINE_LENGTH_MAX]
    assert long == []


@each_file
def test_no_function_is_longer_than_60_lines(path: Path):
    long = {
        node.name: lines
        for node in _functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


@each_file
def test_no_function_takes_more_than_five_positional_parameters(path: Path):
    many = [node.name for node in _functions(path) if _positional(node) > POSITIONAL_MAX]
    assert many == []


@each_file
def test_nothing_is_left_for_later(path: Path):
    assert [line for line in _lines(path) if MARKERS.search(line)] == []


@each_file
def test_every_module_says_what_it_is_for(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@each_source
def test_every_public_symbol_has_a_docstring_that_begins_with_a_sentence(source: Source):
    wrong = [
        name
        for name, node in public_definitions(source.tree)
        if not _begins_with_sentence(ast.get_docstring(node))
        and not _is_overload_or_property_setter(node)
    ]
    assert wrong == []


@each_source
def test_nothing_prints_outside_the_command_line_and_the_demo(source: Source):
    if source.module.startswith(("kmq_spark.cli", "kmq_spark.demo")):
        return
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    assert [c.lineno for c in calls if ast.unparse(c.func) in ("print", "sys.stdout.write")] == []


def test_every_module_is_imported_somewhere():
    imported = set().union(*(source.imports() for source in SOURCES)) | _started_by_name()
    entrances = {"kmq_spark", "kmq_storage", "kmq_spark.cli", "kmq_spark.cli.__main__"}
    assert {s.module for s in SOURCES} - imported - entrances == set()


def test_most_functions_are_short():
    lengths = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in SOURCES
        for node in source.functions()
    )
    assert lengths[len(lengths) * 9 // 10] <= 25


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _positional(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _begins_with_sentence(docstring: str | None) -> bool:
    first = (docstring or "").split("\n\n")[0].rstrip()
    return first.endswith((".", "?", ":", "`"))


def _is_overload_or_property_setter(node: ast.AST) -> bool:
    names = [ast.unparse(item) for item in getattr(node, "decorator_list", [])]
    return any(name.endswith(("overload", ".setter")) for name in names)


def _started_by_name() -> set[str]:
    """Modules that run as `python -m module`, which name themselves in a string."""
    texts = [n.value for s in SOURCES for n in ast.walk(s.tree) if isinstance(n, ast.Constant)]
    return {text for text in texts if isinstance(text, str) and text.startswith("kmq_spark.")}
