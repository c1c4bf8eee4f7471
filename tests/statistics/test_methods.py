"""Methods: their names, how they divide alpha, and the bounds that they are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deformrs.certificate import Bound, Counts, PairedCounts
from deformrs.checks import LEAST_ALPHA
from deformrs.errors import InputError
from deformrs.rounding import complement_up
from deformrs.statistics import (
    Method,
    anytime_lower,
    anytime_upper,
    bound,
    capped_lower,
    capped_upper,
    clopper_pearson_lower,
    clopper_pearson_upper,
    stratified_lower,
    stratified_upper,
)

FIXED = ("clopper_pearson", "runner_up", "runner_up@0.9", "auto", "bonferroni")
ANYTIME = (
    *("anytime", "anytime_runner_up", "anytime_runner_up@0.9", "anytime_auto"),
    *("anytime:20", "anytime_runner_up:20", "anytime_auto:20"),
)
STRATIFIED = ("stratified", "stratified_runner_up", "stratified_runner_up@0.9", "stratified_auto")
METHODS = (*FIXED, *ANYTIME, *STRATIFIED)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", METHODS)
def test_names_round_trip(name: str) -> None:
    assert Method.parse(name).name == name


@given(
    st.sampled_from(["fixed", "anytime", "stratified"]),
    st.sampled_from(["complement", "runner_up", "auto"]),
    st.integers(1, 9999),
    st.none() | st.integers(1, 10**9),
)
def test_methods_round_trip(sampling: str, split: str, share: int, most: int | None) -> None:
    method = Method(
        sampling,  # type: ignore[arg-type]
        split,  # type: ignore[arg-type]
        share / 10_000 if split == "runner_up" else 0.5,
        most if sampling == "anytime" else None,
    )
    assert Method.parse(method.name) == method


@pytest.mark.parametrize(
    "name",
    [
        *("", "wald", "Auto", "auto ", "complement", "fixed", "fixed_auto", "_auto", "anytime_"),
        *("anytime:", "anytime:0", "anytime:07", "anytime:-5", "anytime:1e3", "anytime:٣"),
        *("anytime_clopper_pearson", "stratified:100", "auto:100", "anytime_bonferroni"),
        *("runner_up@0.5", "runner_up@0.0", "runner_up@1.0", "runner_up@.9", "runner_up@0.90"),
        *("auto@0.9", "clopper_pearson@0.9", "runner_up@0.12345", "anytime auto", "stratifiedauto"),
        *("anytime:20\n", 7, None, b"auto", ["auto"]),
    ],
)
def test_other_names_are_refused_and_the_known_ones_named(name: object) -> None:
    """Each method has one name, so that equal runs have equal configurations."""
    with pytest.raises(InputError, match="must be a known bound: auto, clopper_pearson, runner_up"):
        Method.parse(name)


def test_a_name_that_is_nearly_right_gets_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'runner_up'"):
        bound(Counts((1, 0), (9, 1)), 0.05, "runnerup")


def test_the_last_look_moves_only_where_there_is_one() -> None:
    assert Method.parse("anytime_auto:20").at_most(7).name == "anytime_auto:7"
    for name in ("auto", "anytime", "stratified_auto"):
        assert Method.parse(name).at_most(7).name == name


def test_methods_that_hold_at_any_time() -> None:
    assert not any(Method.parse(name).stops_early for name in FIXED)
    assert all(Method.parse(name).stops_early for name in (*ANYTIME, *STRATIFIED))


# ---------------------------------------------------------------- chosen for each image


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ((100, 0), ""),  # of two classes, p_B = 1 - p_A is exact
        ((60, 40), ""),
        ((100, 0, 0), "runner_up@0.9"),  # nothing says whether the others differ
        ((60, 40, 0), "runner_up@0.9"),
        ((60, 39, 1), "runner_up"),
        ((10,) * 10, "runner_up"),
    ],
)
@pytest.mark.parametrize("sampling", ["", "anytime_", "stratified_"])
def test_auto_is_chosen_by_the_selection(
    sampling: str, selection: tuple[int, ...], expected: str
) -> None:
    name = sampling + expected if expected else sampling.rstrip("_") or "clopper_pearson"
    method = Method.parse(f"{sampling}auto")
    few = Counts(selection, (9, *selection[1:]))
    assert method.chosen(few).name == name
    assert method.may_choose(method.chosen(few))
    # It is the method of the bound, and what the estimation sample says does not matter.
    for first, second, third in itertools.permutations((20, 0, 3)):
        counts = Counts(selection, (first, second, third, *(0,) * 7)[: len(selection)])
        assert method.bound(counts, 0.01) == Method.parse(name).bound(counts, 0.01)


def test_other_methods_are_not_changed_by_the_selection() -> None:
    for name in METHODS:
        method = Method.parse(name)
        if method.split != "auto":
            for counts in (Counts((60, 39, 1), (9, 0, 0)), Counts((9, 1), (9000, 1))):
                assert method.chosen(counts) == method


def test_many_samples_will_have_misses_where_the_selection_had_none() -> None:
    """Their number is fixed beforehand; where sampling stops early, it must not matter."""
    agreed, few, many = (9, 0, 0), (4999, 0, 0), (5000, 0, 0)
    auto = Method.parse("auto")
    assert auto.chosen(Counts(agreed, few)).name == "runner_up@0.9"
    assert auto.chosen(Counts(agreed, many)).name == "runner_up"
    for name in ("anytime_auto:9000", "stratified_auto"):
        method = Method.parse(name)
        assert method.chosen(Counts(agreed, few)) == method.chosen(Counts(agreed, many))


def test_what_a_line_of_a_run_may_be_certified_by() -> None:
    """Any split of an "auto" run, so that another version may choose otherwise; nothing else."""
    auto = Method.parse("anytime_auto:20")
    for name in ("anytime:20", "anytime_runner_up:20", "anytime_runner_up@0.3:20"):
        assert auto.may_choose(Method.parse(name))
        assert Method.parse(name).may_choose(Method.parse(name))
        assert not Method.parse(name).may_choose(auto)
    for name in ("auto", "runner_up", "anytime", "anytime:21", "stratified", "anytime_auto:20"):
        assert not auto.may_choose(Method.parse(name))
    assert not Method.parse("auto").may_choose(Method.parse("bonferroni"))


# ---------------------------------------------------------------- alpha


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(1e-150, 0.49), st.integers(1, 9999), st.integers(2, 10_000))
def test_guarantee_levels_add_up_to_at_most_alpha(alpha: float, share: int, classes: int) -> None:
    """In exact arithmetic, whatever the number of classes; and nearly all of alpha is used."""
    of_candidate, of_others = Method(split="runner_up", share=share / 10_000).levels(alpha, classes)
    assert of_others is not None
    total = Fraction(of_candidate) + Fraction(of_others)
    assert Fraction(alpha) * (1 - Fraction(1, 2**40)) <= total <= Fraction(alpha)
    assert Method().levels(alpha, classes) == (alpha, None)
    each, others = Method(split="bonferroni").levels(alpha, classes)
    assert each == others
    assert Fraction(each) * classes <= Fraction(alpha) * (1 + Fraction(1, 2**52))


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.2, math.nan, math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_impossible_levels_are_refused(method: str, alpha: float) -> None:
    with pytest.raises(InputError, match=f"alpha is {alpha}; it must lie in .* e.g. 0.001"):
        Method.parse(method).check_level(alpha)
    with pytest.raises(InputError, match="alpha is .*; it must lie in"):
        bound(Counts((1, 0, 0), (9, 1, 0)), alpha, method)


@pytest.mark.parametrize("method", METHODS)
def test_levels_at_which_tails_underflow_are_refused(method: str) -> None:
    with pytest.raises(InputError, match="alpha is .*; it must be at least 1e-200"):
        bound(Counts((1, 0, 0), (9, 1, 0)), LEAST_ALPHA / 2, method)


# ---------------------------------------------------------------- what the bounds are made of

Part = Callable[[int, int, float], float]
PARTS: dict[str, tuple[Part, Part]] = {
    "": (clopper_pearson_lower, clopper_pearson_upper),
    "anytime": (anytime_lower, anytime_upper),
    "anytime:1000": (
        lambda k, n, alpha: capped_lower(k, n, alpha, 1000),
        lambda k, n, alpha: capped_upper(k, n, alpha, 1000),
    ),
    "anytime:2000": (
        lambda k, n, alpha: capped_lower(k, n, alpha, 2000),
        lambda k, n, alpha: capped_upper(k, n, alpha, 2000),
    ),
}


def named(sampling: str, split: str) -> str:
    """Return the name of the method with a split: "anytime:20" and "auto" is "anytime_auto:20"."""
    kind, colon, most = sampling.partition(":")
    return "_".join(filter(None, (kind, split))) + colon + most


@pytest.mark.parametrize("sampling", PARTS)
@pytest.mark.parametrize(("split", "share"), [("runner_up", 0.5), ("runner_up@0.9", 0.9)])
def test_the_runner_up_is_the_largest_count_of_the_others(
    sampling: str, split: str, share: float
) -> None:
    """Not the second class of the selection: that one may be another."""
    lower, upper = PARTS[sampling]
    counts = Counts((90, 9, 1, 0), (500, 100, 280, 120))
    found = bound(counts, 0.04, named(sampling, split))
    assert found.lower == pytest.approx(lower(500, 1000, 0.04 * share), rel=1e-12)
    assert found.upper == pytest.approx(upper(280, 1000, 0.04 * (1 - share)), rel=1e-12)


@pytest.mark.parametrize("sampling", PARTS)
def test_without_a_bound_of_its_own_the_runner_up_has_the_rest(sampling: str) -> None:
    lower, _ = PARTS[sampling]
    found = bound(Counts((9, 1), (900, 100)), 0.001, sampling or "clopper_pearson")
    assert found == Bound(lower(900, 1000, 0.001), complement_up(found.lower))
    assert found.decides


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("hits", [0, 10, 500, 990, 1000])
def test_p_b_is_never_more_than_what_p_a_leaves(method: str, hits: int) -> None:
    found = bound(Counts((10, 0, 0), (hits, 1000 - hits, 0)), 0.001, method)
    assert found.upper <= complement_up(found.lower)
    assert 0 <= found.lower <= hits / 1000


def test_the_runner_up_decides_where_the_candidate_has_less_than_half() -> None:
    counts = Counts((40, *(7,) * 9), (4000, *(667,) * 8, 664))
    assert not bound(counts, 0.001, "clopper_pearson").decides
    for method in ("runner_up", "auto", "anytime_auto", "stratified_auto", "bonferroni"):
        assert bound(counts, 0.001, method).decides


def test_the_number_of_classes_costs_nothing() -> None:
    """The same counts among 3 and among 1,000 classes; a level for each class loses much."""
    few = Counts((40, 30, 30), (400, 300, 300))
    many = Counts((*few.selection, *(0,) * 997), (*few.estimation, *(0,) * 997))
    assert bound(few, 0.001, "runner_up") == bound(many, 0.001, "runner_up")
    assert bound(many, 0.001, "runner_up").upper < bound(many, 0.001, "bonferroni").upper


def test_bonferroni_shares_alpha_among_all_classes() -> None:
    """As in runs of version 0.1.0."""
    found = bound(Counts((9, 1, 0, 0), (400, 250, 200, 150)), 0.04, "bonferroni")
    assert found.lower == clopper_pearson_lower(400, 1000, 0.01)
    assert found.upper == clopper_pearson_upper(250, 1000, 0.01)


def test_clopper_pearson_decides_only_above_one_half() -> None:
    """p_B = 1 - p_A, so p_A <= ½ must abstain: exactly half of the answers never suffices."""
    for hits in range(500, 601):
        found = bound(Counts((1, 0), (hits, 1000 - hits)), 0.05)
        assert found.decides == (clopper_pearson_lower(hits, 1000, 0.05) > 0.5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_bounds_the_candidate_of_the_selection(method: str) -> None:
    """The candidate is the class that the first stage saw most, whatever the second one says."""
    unlucky = bound(Counts((1, 9, 0), (990, 10, 0)), 0.001, method)
    assert unlucky.lower < 10 / 1000
    assert not unlucky.decides


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_the_other_classes_does_not_matter(method: str) -> None:
    a = bound(Counts((9, 1, 0), (700, 200, 100)), 0.01, method)
    b = bound(Counts((9, 0, 1), (700, 100, 200)), 0.01, method)
    assert a == b


@pytest.mark.parametrize("method", METHODS)
def test_both_stages_are_needed(method: str) -> None:
    for counts in (Counts((0, 0), (9, 1)), Counts((9, 1), (0, 0))):
        with pytest.raises(InputError, match="must be at least 1 in both stages"):
            bound(counts, 0.01, method)


# ---------------------------------------------------------------- stratified

PAIRS = PairedCounts(classes=(1200, 500, 348), disagreements=(10, 8, 6))
HARD = Counts((60, 30, 10), (70, 30, 20), PAIRS)


@pytest.mark.parametrize(("split", "share"), [("runner_up", 0.5), ("runner_up@0.9", 0.9)])
def test_a_stratified_bound_is_the_better_of_two_with_half_of_the_level_each(
    split: str, share: float
) -> None:
    found = bound(HARD, 0.04, f"stratified_{split}")
    level = 0.04 * share / 2
    sides = anytime_lower(70, 120, level), stratified_lower(1200, 2048, 10, level)
    assert found.lower == pytest.approx(max(sides), rel=1e-12) == pytest.approx(sides[1])
    level = 0.04 * (1 - share) / 2
    paired = max(stratified_upper(500, 2048, 8, level), stratified_upper(348, 2048, 6, level))
    sides = anytime_upper(30, 120, level), paired
    assert found.upper == pytest.approx(min(sides), rel=1e-12) == pytest.approx(sides[1])


def test_more_disagreements_may_outweigh_more_hits() -> None:
    """The upper bound of the others is the largest of theirs, not that of the largest count."""
    pairs = PairedCounts(classes=(1200, 424, 424), disagreements=(200, 0, 200))
    found = bound(replace(HARD, pairs=pairs), 0.04, "stratified_runner_up")
    assert found.upper == pytest.approx(stratified_upper(424, 2048, 200, 0.01), rel=1e-12)
    assert found.upper > stratified_upper(424, 2048, 0, 0.01)


def test_without_pairs_only_the_independent_half_is_left() -> None:
    counts = Counts((60, 30, 10), (70, 30, 20))
    found = bound(counts, 0.04, "stratified_runner_up")
    assert found == bound(counts, 0.02, "anytime_runner_up")
    assert bound(counts, 0.04, "stratified") == bound(counts, 0.02, "anytime")


def test_without_independent_samples_only_the_paired_half_is_left() -> None:
    found = bound(replace(HARD, estimation=(0, 0, 0)), 0.04, "stratified")
    assert found.lower == stratified_lower(1200, 2048, 10, 0.02)


@pytest.mark.parametrize("method", [*FIXED, *ANYTIME])
def test_counts_of_stratified_noise_need_a_stratified_bound(method: str) -> None:
    with pytest.raises(InputError, match="must be a stratified one for counts of stratified noise"):
        bound(HARD, 0.04, method)


# ---------------------------------------------------------------- exact coverage

TRUTHS = ((0.4, 0.3, 0.3), (0.8, 0.15, 0.05), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.45, 0.45))


def outcomes(total: int) -> Iterator[tuple[int, int, int]]:
    """Yield all counts of three classes with that sum."""
    for first, second in itertools.product(range(total + 1), repeat=2):
        if first + second <= total:
            yield first, second, total - first - second


def is_false(found: Bound, probabilities: tuple[float, ...]) -> bool:
    return found.lower > probabilities[0] or found.upper < max(probabilities[1:])


@pytest.mark.parametrize("probabilities", TRUTHS)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("selection", [(1, 0, 0), (2, 1, 1)])
@pytest.mark.parametrize("method", METHODS)
def test_guarantee_bound_holds_for_all_classes_at_once(
    probabilities: tuple[float, ...], alpha: float, selection: tuple[int, ...], method: str
) -> None:
    """Exactly, over all outcomes of 20 samples in three classes, the first being the candidate."""
    wrong = total = 0.0
    for outcome in outcomes(20):
        chance = math.factorial(20) * math.prod(
            p**k / math.factorial(k) for p, k in zip(probabilities, outcome, strict=True)
        )
        total += chance
        wrong += chance * is_false(bound(Counts(selection, outcome), alpha, method), probabilities)
    assert total == pytest.approx(1)
    assert wrong <= alpha


def ever_false(method: str, probabilities: tuple[float, ...], alpha: float, looks: int) -> float:
    """Return the exact probability that the bound is false after any of the first samples."""
    alive: dict[tuple[int, ...], float] = {(0, 0, 0): 1.0}
    caught = 0.0
    for _ in range(looks):
        following: dict[tuple[int, ...], float] = {}
        for counts, chance in alive.items():
            for place, p in enumerate(probabilities):
                after = tuple(k + (place == other) for other, k in enumerate(counts))
                following[after] = following.get(after, 0.0) + p * chance
        wrong = [
            counts
            for counts in following
            if is_false(bound(Counts((1, 1, 1), counts), alpha, method), probabilities)
        ]
        caught += sum(following.pop(counts) for counts in wrong)
        alive = following
    assert caught + sum(alive.values()) == pytest.approx(1)
    return caught


@pytest.mark.parametrize("probabilities", TRUTHS)
@pytest.mark.parametrize("method", ["anytime_runner_up", "anytime_auto:12"])
def test_guarantee_bound_holds_at_every_look_together(
    probabilities: tuple[float, ...], method: str
) -> None:
    """Exactly, for whoever stops at the worst of the first 24 samples, a sharp look among them."""
    assert ever_false(method, probabilities, 0.3, looks=24) <= 0.3


def test_a_bound_for_a_fixed_number_of_samples_errs_more_often() -> None:
    assert ever_false("runner_up", TRUTHS[2], 0.3, looks=24) > 0.3
