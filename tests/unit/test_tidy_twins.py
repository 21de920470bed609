"""No six lines of code stand twice in the packages: what is the same is written once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.support.sources import ROOT, package_sources

_RUN = 6
#: Says nothing by itself: brackets, a name in a list of names, a field or a parameter, a comment.
_THIN = re.compile(r"\W*|(?:self\.)?\w+,|\w+: [^=]+(?:= .*)?,?|#.*")


def _twins(texts: Mapping[str, str]) -> list[list[str]]:
    """Where runs of lines stand that are the same, each as file and line."""
    places = defaultdict(list)
    for name, text in texts.items():
        for run, line in _runs(text):
            places[run].append(f"{name}:{line}")
    return [found for found in places.values() if len(found) > 1]


def _runs(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every six neighbouring lines of code, and where they begin."""
    passed = set(_texts_and_imports(ast.parse(text)))
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if n not in passed]
    code = [(n, line) for n, line in lines if not _THIN.fullmatch(line)]
    for first in range(len(code) - _RUN + 1):
        yield tuple(line for _, line in code[first : first + _RUN]), code[first][0]


def _texts_and_imports(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def test_no_six_lines_of_code_stand_twice():
    sources = package_sources()
    texts = {str(source.path.relative_to(ROOT)): source.path.read_text() for source in sources}
    assert _twins(texts) == []


def test_lines_that_stand_twice_are_found_whatever_stands_between():
    calls = [f"call({number})" for number in range(_RUN)]
    first = "\n".join(["import os", *calls])
    second = "\n\n# again\n".join(['"""Text."""', *calls])
    assert _twins({"a": first, "b": second}) == [["a:2", "b:4"]]
    assert _twins({"a": first, "b": "\n".join(calls[1:])}) == []
