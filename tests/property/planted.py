"""Whether a model finds a planted mistake with as many examples as it runs with anyway.

Always the same examples: a model that finds a mistake by luck is as good as blind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Mutant = Callable[[pytest.MonkeyPatch], None]


def check_finds(machines: Iterable[type[RuleBasedStateMachine]], how: settings) -> None:
    """Fail unless one of these machines fails."""
    how = settings(
        how, derandomize=True, database=None, phases=(Phase.generate,), print_blob=False,
        report_multiple_bugs=False, suppress_health_check=tuple(HealthCheck),
    )  # fmt: skip
    with pytest.raises(Exception):  # noqa: B017 - whatever the model stumbles over
        for machine in machines:
            run_state_machine_as_test(machine, settings=how)
