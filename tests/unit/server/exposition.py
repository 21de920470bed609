"""A strict reader of Prometheus' text format 0.0.4: what it does not allow is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9.e+-]+)")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    """A metric as it was read."""

    kind: str
    meaning: str
    samples: dict[Labels, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """The metrics of a text, whose lines end with line feeds alone."""
    assert text.endswith("\n")
    found: dict[str, Family] = {}
    meaning: tuple[str, str] | None = None
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            _, _, name, told = line.split(" ", 3)
            assert re.fullmatch(_NAME, name)
            assert name not in found, "the lines of a metric stand together"
            meaning = name, told
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert meaning is not None
            assert (meaning[0], kind in ("gauge", "counter")) == (name, True)
            found[name] = Family(kind, meaning[1])
        else:
            name, labels, value = _sample(line)
            assert name == [*found][-1]
            assert labels not in found[name].samples, "no sample stands twice"
            found[name].samples[labels] = value
    return found


def _sample(line: str) -> tuple[str, Labels, float]:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    name, labels, value = match[1], match[2] or "", match.group(match.re.groups)
    pairs = [(key, _unescaped(text)) for key, text in re.findall(_LABEL, labels)]
    assert len(dict(pairs)) == len(pairs), "no label stands twice"
    return name, frozenset(pairs), float(value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], text)
