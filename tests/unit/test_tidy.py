"""The house style, where a program can judge it: each test names the places that break a rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.sources import (
    ROOT,
    Function,
    other_python_files,
    package_sources,
    public_definitions,
    tree_of,
)

FUNCTION_LINES_MAX = 60
FUNCTION_LINES_90_PERCENT = 25
FILE_LINES_MAX = 400
LINE_LENGTH_MAX = 100
POSITIONAL_MAX = 5

SOURCES = package_sources()
FILES = {path: path.read_text() for path in [s.path for s in SOURCES] + other_python_files()}
#: Spelled with classes of one letter, so that this file does not find itself.
MARKERS = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b")


def _wrong(places: Callable[[Path], Iterable[Any]]) -> dict[str, list[Any]]:
    found = {str(path.relative_to(ROOT)): list(places(path)) for path in FILES}
    return {name: offences for name, offences in found.items() if offences}


def _lines_where(wrong: Callable[[str], Any]) -> dict[str, list[Any]]:
    return _wrong(
        lambda path: [n for n, line in enumerate(FILES[path].splitlines(), 1) if wrong(line)]
    )


def _functions_where(wrong: Callable[[Function], bool]) -> dict[str, list[Any]]:
    return _wrong(
        lambda path: [
            node.name
            for node in ast.walk(tree_of(path))
            if isinstance(node, Function) and wrong(node)
        ]
    )


def _length(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_no_file_is_longer_than_400_lines():
    assert _wrong(lambda path: FILES[path].splitlines()[FILE_LINES_MAX:][:1]) == {}


def test_no_line_is_longer_than_100_characters():
    assert _lines_where(lambda line: len(line) > LINE_LENGTH_MAX) == {}


def test_nothing_is_left_for_later():
    assert _lines_where(MARKERS.search) == {}


def test_no_function_is_longer_than_60_lines():
    assert _functions_where(lambda node: _length(node) > FUNCTION_LINES_MAX) == {}


def test_nine_of_ten_functions_have_at_most_25_lines():
    lengths = sorted(_length(node) for source in SOURCES for node in source.functions())
    assert lengths[len(lengths) * 9 // 10] <= FUNCTION_LINES_90_PERCENT


def test_no_function_takes_more_than_five_positional_parameters():
    assert _functions_where(lambda node: _positional(node) > POSITIONAL_MAX) == {}


def test_every_module_says_what_it_is_for():
    assert _wrong(lambda path: [] if ast.get_docstring(tree_of(path)) else ["no docstring"]) == {}


def test_every_public_symbol_has_a_docstring_that_begins_with_a_sentence():
    wrong = [
        f"{source.module}.{name}"
        for source in SOURCES
        for name, node in public_definitions(source.tree)
        if not _begins_with_sentence(ast.get_docstring(node)) and not _repeats(node.decorator_list)
    ]
    assert wrong == []


def test_nothing_prints_outside_the_command_line_and_the_demo():
    wrong = [
        f"{source.module}:{node.lineno}"
        for source in SOURCES
        if not source.module.startswith(("kmq_spark.cli", "kmq_spark.demo"))
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write")
    ]
    assert wrong == []


def test_every_module_is_imported_somewhere():
    imported = set().union(*(source.imports() for source in SOURCES)) | _named_in_strings()
    # Importing a module imports its packages.
    imported |= {name.rpartition(".")[0] for name in imported}
    entrances = {
        "kmq_spark.__main__",
        "kmq_spark.aio",
        "kmq_spark.cli",
        "kmq_spark.cli.__main__",
        "kmq_spark.listener",
        "kmq_spark.maintenance",
    }
    assert {source.module for source in SOURCES} - imported - entrances == set()


def _positional(node: Function) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _begins_with_sentence(docstring: str | None) -> bool:
    first = (docstring or "").split("\n\n")[0].rstrip()
    return first.endswith((".", "?", ":"))


def _repeats(decorators: Sequence[ast.expr]) -> bool:
    """Overloads and setters share the docstring of what they belong to."""
    return any(ast.unparse(item).endswith(("overload", ".setter")) for item in decorators)


def _named_in_strings() -> set[str]:
    """Modules that are loaded on demand or run as `python -m module`."""
    texts = [n.value for s in SOURCES for n in ast.walk(s.tree) if isinstance(n, ast.Constant)]
    return {text for text in texts if isinstance(text, str) and text.startswith("kmq_spark.")}
