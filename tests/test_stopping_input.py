"""What may be asked of sampling, how it is written down, and the numbers it looks at."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from deformrs.errors import InputError, UnsupportedError
from deformrs.noise import Gaussian, Uniform
from deformrs.regions import Region
from deformrs.space import Space
from deformrs.stopping import Stopping, looks
from stopping_cases import ANGLE, BOTH, CASES, PLACE, rule_of, settled


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
    together = rule.decided(hits, trials)
    assert together.dtype == bool
    assert together.tolist() == [settled(rule, h, t) for h, t in zip(hits, trials, strict=True)]
    assert 0 < together.sum() < 300
    assert rule.decided(hits[:0], trials[:0]).shape == (0,)
    assert settled(rule, 3000, 5000)  # the end, however open the question


@pytest.mark.parametrize(
    ("hits", "trials", "message"),
    [
        ([5], [4], r"hits and trials is \(5, 4\)"),
        ([-1], [4], r"is \(-1, 4\)"),
        ([0], [0], "at least one trial"),
        ([1, 2], [4], "one for each image"),
        ([1.0], [4.0], "integers"),
        ([[1]], [[4]], "one for each image"),
        ([1], [5001], "must not exceed n = 5000"),
    ],
)
def test_impossible_counts_are_refused(hits: list[int], trials: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rule_of("arc", 0.001, 5000).decided(np.array(hits), np.array(trials))


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
def test_nonsense_is_refused_when_it_is_said(
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
def test_nonsense_is_refused_when_the_space_is_known(stopping: Stopping, message: str) -> None:
    for ask in (stopping.check, lambda space: stopping.rule(Uniform(1.0), space, 0.001, 100)):
        with pytest.raises(InputError, match=message):
            ask(ANGLE)


def test_a_radius_is_one_number_only_for_one_family() -> None:
    law = CASES["independent"][0]
    for stopping in (Stopping(radii=("10deg",)), Stopping(tolerance=0.1)):
        with pytest.raises(UnsupportedError, match="rotation, translation together.*a region"):
            stopping.rule(law, BOTH, 0.001, 100)
    with pytest.raises(UnsupportedError, match="must use its families"):
        Stopping(regions=("scale=0.9..1.1",)).rule(law, BOTH, 0.001, 100)


def test_impossible_levels_laws_and_numbers_are_refused() -> None:
    stopping = Stopping(radii=("10deg",))
    with pytest.raises(InputError, match=r"alpha is 0.5; it must lie in \(0, 0.5\)"):
        stopping.rule(Uniform(1.0), ANGLE, 0.5, 100)
    with pytest.raises(InputError, match="n is 0"):
        stopping.rule(Uniform(1.0), ANGLE, 0.001, 0)
    with pytest.raises(InputError, match="n is 1.5"):
        looks(1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="half the period"):
        stopping.rule(Uniform(4.0), ANGLE, 0.001, 100)


def test_the_configuration_tells_what_is_asked() -> None:
    def config(**asked: object) -> str:
        return json.dumps(Stopping(**asked).to_config())  # type: ignore[arg-type]

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
    thresholds = [stopping.rule(Gaussian(0.5), s, 0.001, 10).thresholds for s in (small, large)]
    assert thresholds[0] > thresholds[1]
