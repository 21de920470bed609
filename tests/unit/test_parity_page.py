"""Finds rows of docs/kafka-parity.md that nobody can run again, or that give no reason."""

from __future__ import annotations

import ast
import re

from tests.support.sources import ROOT

#: By their text: the modules themselves need a client of Kafka's.
SCENARIOS = {
    node.name
    for module in ("batch", "streams", "sinks")
    for node in ast.parse((ROOT / f"tests/spark/parity/{module}.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
}
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "kafka-parity.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith("|---")
]
DIFFERENCES = [row for row in ROWS if re.match(r"`\w+/", row[0])]


def test_every_row_names_the_scenarios_that_showed_it_or_says_how_else_it_is_known():
    known_by = [row[-1] for row in ROWS if row not in DIFFERENCES and "known by" not in row]
    assert [cell for cell in known_by if not re.search(r"`|\*read\*|kmq only|^why$", cell)] == []
    assert set(re.findall(r"`(\w+)`", " ".join(known_by))) <= SCENARIOS


def test_every_difference_is_one_of_a_scenario_and_has_its_reason():
    assert DIFFERENCES
    facts = [fact for row in DIFFERENCES for fact in re.findall(r"`([^`]+)`", row[0])]
    assert {fact.partition("/")[0] for fact in facts} <= SCENARIOS
    assert len(facts) == len(set(facts))
    assert [row[0] for row in DIFFERENCES if len(row) != 4 or not row[3]] == []
