"""The mutation tester: what it changes, and that its outcomes are those of the tests."""

from __future__ import annotations

import ast
import os

import mutation
import pytest


def mutants(source: str) -> list[tuple[str, str]]:
    found = mutation.mutants_of("rounding.py", ast.parse(source))
    return [(mutant.operator, mutant.after) for mutant, *_ in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", [("comparison", "a <= b"), ("comparison", "a > b")]),
        ("x = a + b", [("arithmetic", "a - b")]),
        ("x = 3", [("constant", "4"), ("constant", "2")]),
        ("x = 2.0", [("constant", "2.2"), ("constant", "1.8")]),
        ("x = True", [("constant", "False")]),
        ("x = not a", [("sign or negation", "a")]),
        ("x = a and b", [("and or", "a or b")]),
        ("x = min(a)", [("twin", "max(a)")]),
        ("x = round_down(a)", [("twin", "round_up(a)"), ("rounding", "a")]),
        ("x = math.nextafter(a, -math.inf)", [("swap", "math.nextafter(-math.inf, a)")]),
        ("x = f(lower, upper)", [("swap", "f(upper, lower)")]),
        ("if a: raise b", [("condition", "if not a: pass"), ("statement", "pass")]),
        ("def f(a=1): return a", [("constant", "2"), ("constant", "0"), ("return", "return None")]),
        ("check(a)", [("statement", "pass")]),
    ],
)
def test_every_operator_makes_its_mutants(source: str, expected: list[tuple[str, str]]) -> None:
    assert set(expected) <= set(mutants(source))


@pytest.mark.parametrize(
    "source",
    ['"""Text."""', "x = f'{a}'", "def f(a: int) -> int: pass", "raise InputError('a', 1)"],
)
def test_documentation_messages_and_annotations_stay(source: str) -> None:
    assert [change for change in mutants(source) if change != ("statement", "pass")] == []


def test_every_mutant_of_a_module_is_another_program() -> None:
    source = (mutation.PACKAGE / "rounding.py").read_text()
    found = list(mutation.mutants_of("rounding.py", ast.parse(source)))
    assert len(found) > 100
    usual = compile(ast.parse(source), "rounding.py", "exec")
    for mutant, *_ in found[::10]:
        assert mutation.mutated("rounding.py", mutant.number) != usual, mutant.key


@pytest.mark.parametrize(("code", "outcome"), [(0, "survived"), (1, "killed")])
def test_outcomes_follow_from_how_the_tests_ended(code: int, outcome: str) -> None:
    assert mutation.outcome_of(code << 8) == outcome
    assert os.WIFSIGNALED(9)
    assert mutation.outcome_of(9) == "timeout"
    assert mutation.outcome_of(11) == "killed"


def test_every_stored_survivor_is_explained() -> None:
    rows = mutation.read_rows(mutation.OUT / "mutation.csv")
    page = mutation.to_markdown(rows, mutation.read_reasons())
    assert len(rows) > 1000
    assert "Unexplained" not in page
    assert page == (mutation.OUT / "mutation.md").read_text()
    assert "Unexplained" in mutation.to_markdown(rows, {})
