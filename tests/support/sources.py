"""The project's own source files, parsed, for the tests that judge them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE_ROOTS = {"kmq_spark": ROOT, "kmq_storage": ROOT / "storage"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True)
class Source:
    """One Python file: where it is, and what it is imported as."""

    path: Path
    module: str

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return tree_of(self.path)

    @property
    def lines(self) -> list[str]:
        """The lines of the file."""
        return self.path.read_text().splitlines()

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def imports(self, *, at_import_time: bool = False) -> set[str]:
        """Every module or `module.name` imported; optionally without those inside functions."""
        nodes = _outside_functions(self.tree) if at_import_time else ast.walk(self.tree)
        return {name for node in nodes for name in self._imported(node)}

    def _imported(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = self.module.split(".")
                keep = len(parts) - node.level + (self.path.name == "__init__.py")
                base = ".".join([*parts[:keep], *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file; all of them take seconds, so a test asks, and no import."""
    return ast.parse(path.read_text())


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function) or _is_type_checking(node):
            continue
        yield node
        yield from _outside_functions(node)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def package_sources() -> list[Source]:
    """The files of both packages, but not what is copied beside them."""
    return [
        Source(path, _module_name(path, root))
        for package, root in SOURCE_ROOTS.items()
        for path in sorted((root / package).rglob("*.py"))
        if "_autoload" not in path.parts
    ]


def _module_name(path: Path, root: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def other_python_files() -> list[Path]:
    """The tests, the benchmarks, and the module that Spark looks for."""
    folders = (ROOT / "tests", ROOT / "benchmarks", ROOT / "kmq_spark" / "_autoload")
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Public classes and functions of a module, and the public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                yield from (
                    (f"{node.name}.{item.name}", item)
                    for item in node.body
                    if isinstance(item, Function) and not item.name.startswith("_")
                )


@cache
def named_tests(file: str) -> set[str]:
    """The names of the tests in a file, by its path from the root."""
    path = ROOT / file
    if not path.exists():
        return set()
    tree = tree_of(path)
    # A state machine of hypothesis is a class that stands in the module as `TestX = X.TestCase`.
    assigned = {
        t.id
        for n in tree.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return {name for name in assigned | defined if name.lower().startswith("test")}
