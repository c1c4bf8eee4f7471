"""Stopping: a decided query is certified, excluded or hopeless, by certificates alone."""

from __future__ import annotations

import functools
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from deformrs import Affine, Compose, Rotation, Translation
from deformrs.certificate import Bound, Certificate, Counts
from deformrs.deformations import Deformation
from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import Gaussian, NoiseLaw, Uniform
from deformrs.regions import Region, Scale
from deformrs.report.radii import Radius
from deformrs.rounding import complement_up
from deformrs.rule import GIVEN_UP, looks
from deformrs.runs import Result
from deformrs.space import Space
from deformrs.statistics import Method, anytime_lower, anytime_upper, capped_lower
from deformrs.stopping import Stopping, from_stored_region, parse_queries
from stopping_cases import (
    ANGLE,
    BOTH,
    CASES,
    PLACE,
    answers,
    certificate,
    decided,
    is_decided,
    rule_for,
    rule_of,
    thresholds,
)


@st.composite
def tallies(draw: st.DrawFn, case: str, n: int) -> tuple[int, int]:
    """Any hits, and hits within a few deviations of a threshold, where it matters."""
    trials = draw(st.integers(1, n))
    if not thresholds(case) or draw(st.booleans()):
        return draw(st.integers(0, trials)), trials
    p = draw(st.sampled_from(thresholds(case)))
    hits = p * trials + draw(st.floats(-6, 6)) * math.sqrt(p * (1 - p) * trials)
    return min(max(round(hits), 0), trials), trials


def chances(
    case: str, hits: int, trials: int, n: int, alpha: float, method: str, p: float
) -> list[float]:
    """Return the probability of each query to be certified after all n samples, if p is true."""
    law, space, _ = CASES[case]

    @functools.cache
    def final(total: int) -> list[bool]:
        return answers(case, law.certify(Counts((1, 0), (total, n - total)), space, alpha, method))

    def needed(query: int) -> int:
        low, high = 0, n + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if final(middle)[query] else (middle + 1, high)
        return low

    queries = range(len(final(0)))
    return [float(binom.sf(needed(q) - hits - 1, n - trials, p)) for q in queries]


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    data=st.data(),
    alpha=st.sampled_from([0.001, 0.05, 0.4]),
    n=st.sampled_from([40, 5000]),
    last_look=st.booleans(),
)
def test_guarantee_decided_is_certified_or_excluded_or_hopeless(
    case: str, data: st.DataObject, alpha: float, n: int, last_look: bool
) -> None:
    """By certificates alone, query by query; and the rule misses none that they decide."""
    law, space, _ = CASES[case]
    rule = rule_of(case, alpha, n, last_look=last_look)
    method = rule.method.name
    hits, trials = data.draw(tallies(case, n))
    certified = answers(case, certificate(case, hits, trials, alpha, method))
    # The most optimistic bound that the data leave, as if it were a certificate's.
    upper = anytime_upper(hits, trials, GIVEN_UP) * (1 - 1e-11)
    bound = Bound(upper, complement_up(upper))
    radii = law.radii(bound, space) if bound.decides else (0.0,) * len(space.blocks)
    at_most = Certificate(
        0 if bound.decides else None, radii, bound, Counts((1, 0), (1, 0)), alpha, "", law, space
    )
    open_still = answers(case, at_most)
    hopeful = chances(case, hits, trials, n, alpha, method, upper)
    # The rule takes the normal distribution for the binomial one; without a sharp last look it
    # gives up only what cannot be.
    least = 1.5 * GIVEN_UP if last_look else 0.0
    known = [
        c or not o or chance <= least
        for c, o, chance in zip(certified, open_still, hopeful, strict=True)
    ]
    if is_decided(rule, hits, trials):
        assert all(known)
    # A certificate at a slightly stricter level is one that no rounding takes away.
    elif all(answers(case, certificate(case, hits, trials, alpha * (1 - 1e-6), method))):
        raise AssertionError("certified, and still not decided")


@pytest.mark.parametrize("case", ["uniform", "wide arc", "gaussian", "angle"])
@settings(deadline=None, derandomize=True, max_examples=50)
@given(data=st.data(), n=st.sampled_from([100, 20_000]), last_look=st.booleans())
def test_within_the_tolerance_more_samples_gain_less(
    case: str, data: st.DataObject, n: int, last_look: bool
) -> None:
    law, space, _ = CASES[case]
    rule = rule_for(Stopping(tolerance=0.05), law, space, 0.01, n, last_look=last_look)
    method = rule.method.name
    hits, trials = data.draw(tallies(case, n))
    best = hits + n - trials
    hopeful = capped_lower(best, n, 0.01, n) if last_look else anytime_lower(best, n, 0.01)
    top = min(anytime_upper(hits, trials, 0.01), hopeful)
    bound = Bound(top, complement_up(top))
    most = law.radii(bound, space)[0] if bound.decides else 0.0
    gain = most - certificate(case, hits, trials, 0.01, method).radius
    expected = gain < 0.05 or trials == n
    assert is_decided(rule, hits, trials) == expected or math.isclose(gain, 0.05, rel_tol=1e-9)


def test_radii_and_tolerance_must_both_be_decided() -> None:
    law, radii = Uniform(1.0), ("5deg",)
    one = rule_for(Stopping(radii=radii), law, ANGLE, 0.001, 10_000)
    other = rule_for(Stopping(tolerance="20deg"), law, ANGLE, 0.001, 10_000)
    both = rule_for(Stopping(radii=radii, tolerance="20deg"), law, ANGLE, 0.001, 10_000)
    trials = np.repeat([20, 100, 1000, 5000], 101)
    hits = (trials * np.tile(np.linspace(0, 1, 101), 4)).round().astype(np.int64)
    first, second = decided(one, hits, trials), decided(other, hits, trials)
    assert (decided(both, hits, trials) == (first & second)).all()
    assert (first & ~second).any()
    assert (second & ~first).any()
    # Few hits: nothing is to be gained, for the candidate cannot come to decide.
    assert is_decided(other, 10, 1000)


def test_a_query_that_nothing_can_certify_is_decided_at_once() -> None:
    law = Uniform(math.radians(54))
    for radius in ("54deg", "55deg", "400deg"):
        rule = rule_for(Stopping(radii=(radius,)), law, ANGLE, 0.001, 100_000)
        assert rule.radii == ()
        assert is_decided(rule, 1, 1)
    # 20 samples are too few for 45 degrees, whatever they are; 200 leave hope until a miss or two.
    stopping = Stopping(radii=("45deg",))
    assert is_decided(rule_for(stopping, law, ANGLE, 0.001, 20), 2, 2)
    assert not is_decided(rule_for(stopping, law, ANGLE, 0.001, 200), 1, 1)
    assert is_decided(rule_for(stopping, law, ANGLE, 0.001, 200), 80, 100)


def test_the_thresholds_are_those_of_the_closed_forms() -> None:
    """R = λ(2p - 1), and R = σ Φ⁻¹(p): Φ(1) = 0.841344746."""
    found = Stopping(radii=("27deg", "0deg")).thresholds(Uniform(math.radians(54)), ANGLE)
    assert found == pytest.approx((0.5, 0.75), rel=1e-11)
    found = Stopping(radii=("7px",)).thresholds(Gaussian(0.5), PLACE)
    assert found == pytest.approx((0.841344746068543,), rel=1e-11)
    # λ = 2.8 loses (2π - 2λ)/2λ at most, so everything holds from p = ½ + π/2.8 - 1 on.
    found = Stopping(radii=("180deg",)).thresholds(Uniform(2.8), ANGLE)
    assert found == pytest.approx((math.pi / 2.8 - 0.5,), rel=1e-11)


def test_easy_images_need_few_samples_and_hard_ones_many() -> None:
    rule = rule_of("10deg of 54", 0.001, 100_000)
    (threshold,) = thresholds("10deg of 54")
    needed = {
        truth: next(k for k in looks(100_000) if is_decided(rule, round(truth * k), k))
        for truth in (1.0, 0.9, 0.7, threshold, 0.5, 0.1, 0.0)
    }
    assert max(needed[1.0], needed[0.0]) <= 25
    assert max(needed[0.9], needed[0.1]) <= 60
    assert max(needed[0.7], needed[0.5]) <= 1000
    # At the threshold itself, 100,000 samples certify one in a thousand: too rare to wait for.
    assert 30_000 < needed[threshold] < 90_000


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100, 1000, 99_999, 100_000, 10**7])
def test_looks_grow_to_n(n: int) -> None:
    ends = looks(n)
    assert ends[-1] == n
    assert all(type(end) is int for end in ends)
    assert all(a < b <= max(a + 3, 1.2 * a) for a, b in itertools.pairwise(ends))
    assert len(looks(100_000)) <= 60
    # A cap changes the last look only, so that runs of different n agree as far as they go.
    assert set(ends[:-1]) <= set(looks(10**7))


def test_many_images_are_those_one_by_one() -> None:
    rule = rule_of("arc", 0.001, 5000)
    rng = np.random.default_rng(0)
    trials = rng.integers(1, 5001, 300)
    hits = rng.binomial(trials, rng.choice([0.3, 0.6, 0.95, 1.0], 300))
    together = decided(rule, hits, trials)
    assert together.dtype == bool
    assert together.tolist() == [is_decided(rule, h, t) for h, t in zip(hits, trials, strict=True)]
    assert 0 < together.sum() < 300
    assert decided(rule, hits[:0], trials[:0]).shape == (0,)
    assert is_decided(rule, 3000, 5000)  # the end, however open the query


def test_more_samples_than_n_are_refused() -> None:
    with pytest.raises(
        InputError, match="the number of trials is 5001; it must not exceed n = 5000"
    ):
        is_decided(rule_of("arc", 0.001, 5000), 1, 5001)


@pytest.mark.parametrize(
    ("radii", "regions", "tolerance", "message"),
    [
        ((), (), None, "at least one of radii, regions and tolerance"),
        ("10deg", (), None, "radii is '10deg'; it must be a tuple"),
        ((-1.0,), (), None, "a radius is -1.0; it must be"),
        ((math.nan,), (), None, "a radius is nan"),
        ((math.inf,), (), None, "a radius is inf"),
        ((True,), (), None, "a radius is True"),
        ((None,), (), None, "a radius is None"),
        ((), "rotation<=1deg", None, "regions is 'rotation<=1deg'; it must be a tuple"),
        ((), (3,), None, "a region is 3; it must be a Region or text"),
        ((), ("rotatoin<=2deg",), None, "did you mean 'rotation'"),
        ((), (), -0.1, "the tolerance is -0.1"),
        ((), (), math.nan, "the tolerance is nan"),
    ],
)
def test_bad_queries_are_refused(
    radii: object, regions: object, tolerance: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Stopping(radii, regions, tolerance)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stopping", "message"),
    [
        (Stopping(radii=("10px",)), "the angle is '10px'; it must be a number with its unit"),
        (Stopping(radii=("ten",)), "the angle is 'ten'"),
        (Stopping(radii=("-3deg",)), "the radius is '-3deg'; it must be finite and not negative"),
        (Stopping(radii=("1e999deg",)), "the radius is '1e999deg'; it must be finite"),
        (Stopping(tolerance="0deg"), "the tolerance is '0deg'; it must be positive"),
        (Stopping(tolerance=0.0), "the tolerance is 0.0; it must be positive"),
        (Stopping(tolerance="-1deg"), "the tolerance is '-1deg'; it must be finite"),
    ],
)
def test_bad_queries_are_refused_when_the_space_is_known(stopping: Stopping, message: str) -> None:
    for check in (
        stopping.check,
        lambda space: rule_for(stopping, Uniform(1.0), space, 0.001, 100),
    ):
        with pytest.raises(InputError, match=message):
            check(ANGLE)


def test_a_radius_is_one_number_only_for_one_family() -> None:
    law = CASES["independent"][0]
    for stopping in (Stopping(radii=("10deg",)), Stopping(tolerance=0.1)):
        with pytest.raises(UnsupportedError, match="rotation, translation together.*a region"):
            rule_for(stopping, law, BOTH, 0.001, 100)
    with pytest.raises(UnsupportedError, match="must use its families"):
        rule_for(Stopping(regions=("scale=0.9..1.1",)), law, BOTH, 0.001, 100)


def test_impossible_levels_laws_and_numbers_are_refused() -> None:
    stopping = Stopping(radii=("10deg",))
    with pytest.raises(InputError, match=r"alpha is 0.5; it must lie in \(0, 0.5\)"):
        rule_for(stopping, Uniform(1.0), ANGLE, 0.5, 100)
    with pytest.raises(InputError, match="n is 0"):
        stopping.rule(Uniform(1.0), ANGLE, 0.001, 0, Method.parse("anytime"))
    with pytest.raises(InputError, match="n is 1.5"):
        looks(1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="half the period"):
        rule_for(stopping, Uniform(4.0), ANGLE, 0.001, 100)


def test_the_configuration_holds_every_query() -> None:
    def config(**queries: object) -> str:
        return json.dumps(Stopping(**queries).to_config())  # type: ignore[arg-type]

    region = Region.parse("rotation<=10deg")
    assert config(radii=["10deg", np.float64(0.5)], tolerance="1deg") == (
        '{"radii": [0.5, "10deg"], "regions": [], "tolerance": "1deg"}'
    )
    assert config(regions=("rotation<=10deg",)) != config(regions=("rotation<=11deg",))
    assert config(regions=(region,)) != config(regions=(Region.parse("rotation<=11deg"),))
    assert Stopping(radii=["10deg"]) == Stopping(radii=("10deg",))  # type: ignore[arg-type]
    assert hash(Stopping(regions=(region,))) == hash(Stopping(regions=(region,)))


def test_pixels_are_counted_on_each_image() -> None:
    stopping = Stopping(radii=("4px",))
    small, large = (Space(PLACE.blocks, size) for size in ((16, 16), (64, 64)))
    found = [stopping.thresholds(Gaussian(0.5), space) for space in (small, large)]
    assert found[0] > found[1]


def result(
    deformation: Deformation, law: NoiseLaw, label: int = 1, size: tuple[int, int] = (28, 28)
) -> Result:
    certificate = law.certify(Counts((0, 100), (10, 990)), deformation.space(size), 0.001)
    return Result(0, label, certificate)


def test_a_radius_is_read_in_the_unit_of_the_family() -> None:
    queries = parse_queries(["10deg", "45deg", "0.5rad"], [])
    assert [q.holds(result(Rotation(), Uniform(0.6))) for q in queries] == [True, False, True]
    assert [q.holds(result(Rotation(), Uniform(0.6), label=0)) for q in queries] == [False] * 3
    assert [q.words for q in queries][:2] == ["up to 10deg", "up to 45deg"]


def test_beyond_half_a_turn_there_is_no_other_angle() -> None:
    """Stopping, queries of results and reports read an angle alike."""
    whole, part = Uniform(math.pi), Uniform(0.6)
    space = Rotation().space((28, 28))
    for text in ("180deg", "270deg", "720deg"):
        (query,) = parse_queries([text], [])
        assert query.holds(result(Rotation(), whole))
        assert not query.holds(result(Rotation(), part))
        assert Radius(text, space.blocks[0]).value((28, 28)) == math.pi
        assert rule_for(Stopping(radii=(text,)), whole, space, 0.001, 10).radii
    half, more = (rule_for(Stopping(radii=(r,)), whole, space, 0.001, 10) for r in (math.pi, 5.0))
    assert half.radii == more.radii


def test_a_radius_in_pixels_depends_on_the_size_of_the_image() -> None:
    (query,) = parse_queries(["5px"], [])
    assert query.holds(result(Translation(), Gaussian(0.2), size=(64, 64)))
    assert not query.holds(result(Translation(), Gaussian(0.2), size=(16, 16)))


def test_a_region_is_read_off_affine_certificates() -> None:
    (query,) = parse_queries([], ["rotation<=2deg, shift<=1px"])
    assert query.holds(result(Affine(), Gaussian(0.3)))
    assert not query.holds(result(Affine(), Gaussian(0.02)))
    assert query.words == "for rotation<=2deg, shift<=1px"


def test_impossible_queries_are_refused_beforehand() -> None:
    radius, region = parse_queries(["10deg"], ["rotation<=2deg, scale=0.8..1.2"])
    with pytest.raises(UnsupportedError, match="ask for a region"):
        radius.check(Compose(Rotation(), Translation()).space((28, 28)))
    with pytest.raises(InputError, match="'10deg'"):
        radius.check(Translation().space((28, 28)))
    with pytest.raises(UnsupportedError):
        region.check(Rotation().space((28, 28)))
    region.check(Affine().space((28, 28)))
    with pytest.raises(InputError, match="not negative"):
        parse_queries(["-3deg"], [])[0].check(Rotation().space((28, 28)))
    with pytest.raises(InputError, match="did you mean 'rotation'"):
        parse_queries([], ["rotatoin<=2deg"])


def test_stored_regions_keep_their_words() -> None:
    """In runs of version 0.1.0, zoom was another name of scale."""
    stopping = Stopping(regions=("zoom=0.5..2, shift<=4px", Region(Scale(0.8, 1.2))))
    stored = stopping.to_config()["regions"]
    assert stored == [
        "Region(factors=(Zoom(low=0.8, high=1.2),))",
        "scale=0.5..2.0, shift<=4px",
    ]
    assert Region.parse(str(stored[1])) == Region.parse("zoom=0.5..2, shift<=4px")
    assert from_stored_region("zoom=0.8..1.2") == "scale=0.8..1.2"
    assert from_stored_region(str(stored[0])) == repr(Region(Scale(0.8, 1.2)))
