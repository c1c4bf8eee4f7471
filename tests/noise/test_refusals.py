"""What noise laws refuse, and how they say so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from spaces import ANGLE, PLACE, ZOOM, space_of

from deformrs.certificate import Counts
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform

Floats = NDArray[np.float64]


def refusal(caught: pytest.ExceptionInfo[InputError]) -> str:
    """The message, which must give name, value, rule and remedy."""
    error = caught.value
    for part in (error.name, str(error.value), error.rule, error.remedy):
        assert part
        assert part in str(error)
    return str(error)


@pytest.mark.parametrize("kind", [Uniform, Gaussian])
@pytest.mark.parametrize(
    "scale", [0, 0.0, -0.1, math.nan, math.inf, -math.inf, (), (0.1, 0.0), (0.1, math.nan), "0.1"]
)
def test_scales_are_positive_and_finite(kind: type[Uniform] | type[Gaussian], scale: float) -> None:
    with pytest.raises(InputError) as caught:
        kind(scale)
    message = refusal(caught)
    assert message.startswith(f"the scale of {kind.__name__} is {scale!r}; it must ")
    assert message.endswith("e.g. 0.1")


@pytest.mark.parametrize("kind", [Uniform, Gaussian])
def test_there_is_one_scale_or_one_for_each_parameter(kind: type[Uniform] | type[Gaussian]) -> None:
    law, space = kind((0.1, 0.2, 0.3)), space_of(PLACE)
    for refused in (
        lambda: law.check(space),
        lambda: law.certify(Counts((1, 0), (9, 1)), space, 0.05),
        lambda: law.distance(np.zeros((1, 2)), space),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        assert f"the scale of {kind.__name__} is 3 numbers; it must be one" in refusal(caught)
        assert "each of 2 parameters" in str(caught.value)


@pytest.mark.parametrize("lam", [math.nextafter(math.pi, 4), 4.0, 180.0])
def test_an_arc_is_at_most_the_circle(lam: float) -> None:
    space = space_of(ANGLE)
    for refused in (
        lambda: Uniform(lam).check(space),
        lambda: Uniform(lam).certify(Counts((1, 0), (9, 1)), space, 0.05),
        lambda: Independent(Uniform(lam)).check(space),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        message = refusal(caught)
        assert f"the scale of Uniform is {lam}; it must not exceed half the period" in message
        assert "radians" in message
    Uniform(lam).check(space_of(ZOOM))
    Gaussian(lam).check(space)


@pytest.mark.parametrize("laws", [(Uniform(0.1),), (Uniform(0.1), Uniform(0.1), Gaussian(0.1))])
def test_there_is_one_law_for_each_block(laws: tuple[Uniform | Gaussian, ...]) -> None:
    with pytest.raises(InputError) as caught:
        Independent(*laws).check(space_of(ANGLE, PLACE))
    message = refusal(caught)
    assert f"Independent is {len(laws)} law(s); it must have one for each of 2 block(s)" in message
    assert "rotation, translation" in message


def test_independent_takes_laws_and_at_least_one() -> None:
    with pytest.raises(InputError) as caught:
        Independent()
    assert "Independent is empty" in refusal(caught)
    nested = Independent(Uniform(0.1))
    with pytest.raises(InputError) as caught:
        Independent(nested)  # type: ignore[arg-type]
    assert repr(nested) in refusal(caught)


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        ([0.1], "of shape (1,); it must have 2 parameter(s)"),
        ([0.1, 0.1, 0.1], "of shape (3,); it must have 2 parameter(s)"),
        ([0.1, math.nan], "not finite; it must be finite"),
        ([math.inf, 0.1], "not finite; it must be finite"),
    ],
)
def test_a_shift_has_one_finite_number_for_each_parameter(shift: list[float], said: str) -> None:
    certificate = Uniform(0.1).certify(Counts((10, 0), (99, 1)), space_of(PLACE), 0.05)
    with pytest.raises(InputError) as caught:
        certificate.covers(shift)
    assert refusal(caught).startswith(f"the shift is {said}")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"name": "unifrom", "scale": 0.1}, "did you mean 'uniform'"),
        ({"scale": 0.1}, "the name is None; it must be one of"),
        ({"name": "uniform", "scale": 0.1, "sigma": 1}, "a field of uniform is 'sigma'"),
        ({"name": "uniform", "scale": -0.1}, "the scale of Uniform is -0.1"),
    ],
)
def test_a_configuration_that_is_no_law_is_refused(
    config: dict[str, str | float], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        NoiseLaw.from_config(dict(config))
    assert said in refusal(caught)
