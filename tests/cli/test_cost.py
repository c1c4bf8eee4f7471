"""The estimate of how long a certification will take."""

from __future__ import annotations

import math

import pytest

from deformrs import Affine, Rotation, Scaling, Translation
from deformrs.cli.cost import Cost, duration, samples_per_second, suggested_radius
from deformrs.deformations import Compose, Deformation


class Machine:
    """A clock that advances by a fixed time per call and per sample; the first call is slower."""

    def __init__(self, per_sample: float, per_call: float = 0.0, start: float = 0.0) -> None:
        self.per_sample, self.per_call, self.start = per_sample, per_call, start
        self.now, self.calls = 0.0, list[int]()

    def count(self, n: int) -> None:
        self.now += self.per_call + n * self.per_sample + (0 if self.calls else self.start)
        self.calls.append(n)

    def speed(self, most: int = 10**9, first: int = 1) -> float:
        return samples_per_second(self.count, most, first=first, clock=lambda: self.now)


@pytest.mark.parametrize("per_second", [0.05, 3, 400, 70_000, 2_000_000])
def test_the_speed_of_any_model_is_measured_within_seconds(per_second: float) -> None:
    machine = Machine(1 / per_second)
    assert machine.speed() == pytest.approx(per_second, rel=1e-6)
    assert machine.now <= max(3.5, 2 / per_second), "one sample must do if it takes that long"


def test_the_first_call_and_the_cost_of_a_call_are_left_out() -> None:
    machine = Machine(1 / 1000, per_call=0.05, start=1.0)
    assert 800 < machine.speed() <= 1000
    assert machine.now < 4


def test_the_measurement_is_short_for_a_short_run() -> None:
    machine = Machine(1 / 1000)
    machine.speed(most=40)
    assert machine.calls == [1, 1, 4, 16]
    compiled = Machine(1 / 1000)
    compiled.speed(most=40, first=256)
    assert compiled.calls == [256, 256]


def test_a_fixed_run_names_what_deciding_would_take() -> None:
    long = Cost(images=1000, n0=100, n=100_000, speed=1000)
    assert long.words(0, "--radii 10deg") == [
        "about 28 h at 100,000 samples an image (1,000 samples/s)",
        "with --radii 10deg roughly 38 min, if 20 of 1,000 images need all of them",
    ]
    assert len(long.words(0, None)) == 1
    short = Cost(images=20, n0=100, n=1000, speed=1000)
    (text,) = short.words(0, "--radii 10deg")
    assert text == "about 22 s at 1,000 samples an image (1,000 samples/s)"
    (text,) = Cost(images=1, n0=100, n=100, speed=1000).words(0, None)
    assert text == "less than a second at 100 samples an image (1,000 samples/s)"


def test_a_run_that_stops_early_has_an_upper_limit() -> None:
    cost = Cost(images=1000, n0=100, n=100_000, speed=2.5)
    (text,) = cost.words(2, None, until=True)
    guide, most = text.split("; ")
    assert guide == "roughly 20 days, if 40 of 1,000 images need all 100,000 samples"
    assert most == "at most 463 days (2.5 samples/s)"
    assert cost.words(0, None, until=True)[0].startswith("at most 463 days (2.5 samples/s), mostly")
    assert cost.words(90, None, until=True) == ["at most 463 days (2.5 samples/s)"]


def test_times_are_given_in_fitting_units() -> None:
    given = {0.3: "less than a second", 99.4: "99 s", 100: "2 min", 5940: "99 min", 5980: "1.7 h"}
    assert {seconds: duration(seconds) for seconds in given} == given
    assert duration(72 * 3600) == "72 h"
    assert duration(1e9) == "11,574 days"


@pytest.mark.parametrize(
    ("deformation", "scale", "option"),
    [
        (Rotation(), math.radians(30), "--radii 10deg"),
        (Rotation(), math.radians(54), "--radii 10deg"),
        (Rotation(), math.pi, "--radii 50deg"),
        (Scaling(), 0.2, "--radii 5%"),
        (Translation(), 4 / 14, "--radii 1px"),
        (Affine(), 0.1, "--radii 0.03"),
        (Compose(Rotation(), Scaling()), 0.1, None),
    ],
)
def test_the_suggested_radius_is_a_third_of_the_noise(
    deformation: Deformation, scale: float, option: str | None
) -> None:
    assert suggested_radius(scale, deformation.space((28, 28))) == option
