"""The comparison of the benchmark gate."""

import json

import pytest

from bench import gate


@pytest.mark.parametrize(("factor", "fails"), [(1.0, False), (1.24, False), (1.26, True)])
def test_a_ratio_fails_when_it_is_more_than_a_quarter_worse(factor: float, fails: bool) -> None:
    written = {name: 2.0 for name in gate.CASES}
    measured = written | {gate.CASES[1]: 2.0 * factor}
    found = gate.worse(measured, written)
    assert [line.partition(": 2")[0] for line in found] == ([gate.CASES[1]] if fails else [])


def test_a_case_without_a_ratio_in_the_repository_fails() -> None:
    assert gate.worse({"new": 0.1}, {}) != []


def test_the_repository_has_a_ratio_of_each_case() -> None:
    assert set(json.loads(gate.RATIOS.read_text())) == set(gate.CASES)
