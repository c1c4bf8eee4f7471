"""Checks that run over every registered law: a new one is tested by existing."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from spaces import ANGLE, BARELY, PLACE, TURN, ZOOM, decided, space_of

from deformrs.certificate import Bound, Counts
from deformrs.deformations import VectorField
from deformrs.errors import InputError
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.noise.distance import Distance
from deformrs.noise.law import Generator, distance_of
from deformrs.randomness import Philox
from deformrs.regions import Region
from deformrs.space import Space

Floats = NDArray[np.float64]

LAWS = sorted(NoiseLaw.registry.items())
SPACES = [
    space_of(*blocks)
    for count in (1, 2)
    for blocks in itertools.product([ZOOM, PLACE, ANGLE], repeat=count)
]


def examples() -> list[NoiseLaw]:
    return [law for _, kind in LAWS for law in cast(type[NoiseLaw], kind).examples()]


def spaces_for(law: NoiseLaw) -> list[Space]:
    """Return the spaces that this law can be put on."""

    def fits(space: Space) -> bool:
        try:
            law.check(space)
        except InputError:
            return False
        return True

    return [space for space in SPACES if fits(space)]


every_law = pytest.mark.parametrize("law", examples(), ids=repr)


@pytest.mark.parametrize(("name", "kind"), LAWS)
def test_every_law_has_a_name_and_examples(name: str, kind: type) -> None:
    law = cast(type[NoiseLaw], kind)
    assert law.name == name
    assert law.examples(), f"{law.__qualname__} gives no examples to test it on"
    assert all(type(example) is law and spaces_for(example) for example in law.examples())


def test_the_known_laws_are_registered() -> None:
    assert {"uniform": Uniform, "gaussian": Gaussian, "independent": Independent}.items() <= (
        NoiseLaw.registry.items()
    )


@every_law
def test_configuration_round_trips_through_json(law: NoiseLaw) -> None:
    text = json.dumps(law.to_config(), allow_nan=False)
    assert NoiseLaw.from_config(json.loads(text)) == law


@pytest.mark.parametrize(
    "law", [Uniform((0.1, 0.2)), Independent(Gaussian((0.1, 0.2)), Uniform(1))]
)
def test_a_scale_for_each_parameter_round_trips_too(law: NoiseLaw) -> None:
    back = NoiseLaw.from_config(json.loads(json.dumps(law.to_config())))
    assert back == law
    assert hash(back) == hash(law)
    assert repr(back) == repr(law)


@every_law
def test_prints_as_it_is_written(law: NoiseLaw) -> None:
    names = {kind.__name__: kind for _, kind in LAWS}
    assert eval(repr(law), names) == law


@every_law
def test_is_immutable_and_hashable(law: NoiseLaw) -> None:
    field = dataclasses.fields(law)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(law, field, 1.0)
    assert hash(law) == hash(NoiseLaw.from_config(law.to_config()))


@every_law
def test_rests_at_zero_and_decides_nothing_without_a_decision(law: NoiseLaw) -> None:
    for space in spaces_for(law):
        still = np.zeros((1, space.dim))
        assert law.distance(still, space).lost == law.distance(still, space).length == 0
        assert law.covers(still, BARELY, space).all()
        assert not law.covers(still, Bound(0.5, 0.5), space).any()
        assert law.radii(Bound(0.5, 0.5), space) == (0.0,) * len(space.blocks)


@every_law
def test_is_symmetric_and_grows_with_the_bound(law: NoiseLaw) -> None:
    rng = np.random.default_rng(7)
    for space in spaces_for(law):
        shifts = rng.normal(size=(200, space.dim)) * 10 ** rng.uniform(-3, 0.5, size=(200, 1))
        before = np.zeros(200, dtype=bool)
        radii = (0.0,) * len(space.blocks)
        for bound in (BARELY, decided(0.6), Bound(0.6, 0.3), decided(0.9), decided(0.999)):
            now = law.covers(shifts, bound, space)
            assert (now == law.covers(-shifts, bound, space)).all()
            assert (now | ~before).all()
            grown = law.radii(bound, space)
            assert all(a <= b for a, b in zip(radii, grown, strict=True))
            before, radii = now, grown


@every_law
def test_guarantee_radii_are_the_largest_that_covers_allows(law: NoiseLaw) -> None:
    """Along some axis a part in 1e9 more is not covered, unless the radius is half a turn."""
    for space, bound in itertools.product(spaces_for(law), [decided(0.7), Bound(0.4, 0.2)]):
        radii = law.radii(bound, space)
        for index, (block, part, radius) in enumerate(
            zip(space.blocks, space.slices, radii, strict=True)
        ):
            assert law.norm(index) in (1, 2)
            axes = np.eye(space.dim)[part]
            assert law.covers(radius * axes, bound, space).all()
            if block.period is None or radius < block.period / 2:
                assert not law.covers(radius * (1 + 1e-9) * axes, bound, space).all()


@every_law
def test_periodic_parameters_repeat(law: NoiseLaw) -> None:
    rng = np.random.default_rng(8)
    for space in (space for space in spaces_for(law) if np.isfinite(space.periods).any()):
        shifts = rng.normal(size=(100, space.dim))
        turns = np.where(np.isfinite(space.periods), TURN, 0.0) * rng.integers(-2, 3, (100, 1))
        here, there = (law.distance(array, space) for array in (shifts, shifts + turns))
        assert there.lost == pytest.approx(here.lost, abs=1e-13)
        assert there.length == pytest.approx(here.length, abs=1e-12)


@every_law
def test_certify_gives_a_certificate_that_its_own_covers_agrees_with(law: NoiseLaw) -> None:
    rng = np.random.default_rng(9)
    for space in spaces_for(law):
        sure = law.certify(Counts((10, 0), (990, 10)), space, 0.001)
        assert sure.prediction == 0
        assert sure.radii == law.radii(sure.bound, space)
        assert sure.covers([0.0] * space.dim)
        for shift in rng.normal(size=(20, space.dim)):
            assert sure.covers(shift) == law.covers(shift[None], sure.bound, space)[0]
        unsure = law.certify(Counts((10, 0), (510, 490)), space, 0.001)
        assert unsure.prediction is None
        assert unsure.radii == (0.0,) * len(space.blocks)
        assert not unsure.covers([0.0] * space.dim)


LOST = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.35, 0.6]), min_size=1, max_size=12)
SEED = st.integers(0, 2**16)


@given(lost=LOST, seed=SEED, p=st.floats(0.5, 1.0))
def test_guarantee_what_certifies_the_outermost_certifies_every_one(
    lost: list[float], seed: int, p: float
) -> None:
    length = np.random.default_rng(seed).choice([0.0, 0.3, 0.7, 1.1, 2.0], len(lost))
    distance = Distance(np.array(lost), length)
    outermost = distance.outermost()
    bound = decided(p)
    holds = [bool(d.within(bound.lower, bound.upper).all()) for d in (outermost, distance)]
    assert holds[0] == holds[1]
    kept = set(zip(outermost.lost.tolist(), outermost.length.tolist(), strict=True))
    assert len(kept) == len(outermost.lost), "none twice"
    every = list(zip(lost, length.tolist(), strict=True))
    assert kept <= set(every)
    for u, r in kept:
        assert not any(v >= u and s >= r and (v, s) != (u, r) for v, s in every)
    for u, r in every:
        assert any(v >= u and s >= r for v, s in kept)


@pytest.mark.parametrize(
    "law",
    [
        Independent(Gaussian(0.3), Uniform(1.0), Gaussian(0.2)),
        Independent(Gaussian(0.3), Gaussian(0.4), Gaussian(0.2)),
        Independent(Uniform(0.9), Uniform(1.0), Uniform(0.8)),
    ],
)
def test_a_region_is_enclosed_once_and_answered_as_its_shifts_are(law: Independent) -> None:
    space = space_of(PLACE, ANGLE, ZOOM)
    region = Region.parse("shift<=0.3162277661, rotation<=10deg, scale=0.8..1.2")
    for p in (0.6, 0.8, 0.9, 0.93, 0.95, 0.97, 0.99, 1.0):
        bound = decided(p)
        each = [law.covers(shifts, bound, space).all() for shifts in region.shifts(space)]
        assert law.covers_region(region, bound, space) == all(each)
    assert distance_of(law, region, space) is distance_of(law, Region(*region.factors), space)


class Told:
    """A region of the user's own, which may change."""

    def __init__(self, *shifts: list[list[float]]) -> None:
        self.told = shifts

    def shifts(self, space: Space) -> list[NDArray[np.float64]]:
        return [np.array(chunk, dtype=np.float64).reshape(-1, space.dim) for chunk in self.told]


def test_guarantee_what_is_no_number_is_not_covered() -> None:
    space = space_of(ANGLE)
    sure = decided(1.0)
    for law in (Gaussian(0.3), Uniform(0.5)):
        assert law.covers_region(Told([[0.1]]), sure, space)
        for bad in (math.nan, math.inf):
            for chunks in ([[[bad]]], [[[0.1], [bad], [0.0]]], [[[0.1]], [[bad]]]):
                assert not law.covers_region(Told(*chunks), sure, space)
    with pytest.raises(InputError, match="must hold a transformation"):
        Gaussian(0.3).covers_region(Told(), sure, space)
    vast = Region.parse("rotation<=5deg, scale=1e200..1e200, scale=1e200..1e200")
    field = VectorField().space((8, 8))
    with np.errstate(over="ignore", invalid="ignore"):
        assert not Gaussian(0.3).covers_region(vast, sure, field)


def test_a_region_that_changes_is_enclosed_again() -> None:
    region, space = Told([[0.1]]), space_of(ANGLE)
    assert Uniform(0.5).covers_region(region, decided(1.0), space)
    region.told = ([[0.9]],)
    assert not Uniform(0.5).covers_region(region, decided(1.0), space)


@pytest.mark.parametrize("name", ["covers", "covers_region", "sample"])
def test_no_law_answers_the_same_question_twice(name: str) -> None:
    with pytest.raises(InputError, match=f"the method {name} of Strict is its own"):
        type("Strict", (NoiseLaw,), {name: lambda *_: False})


def refusal(caught: pytest.ExceptionInfo[InputError]) -> str:
    """Return the message, which must give name, value, rule and remedy."""
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


@pytest.mark.parametrize("scale", [1e-6, b"12", True, None])
@pytest.mark.parametrize("kind", [Uniform, Gaussian])
def test_scales_are_numbers_and_not_tiny(
    kind: type[Uniform] | type[Gaussian], scale: float
) -> None:
    with pytest.raises(InputError, match="scale of"):
        kind(scale)


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


TEXT: list[tuple[NoiseLaw, NoiseLaw, Space]] = [
    (Uniform("30deg"), Uniform(math.radians(30)), space_of(ANGLE)),
    (Gaussian("0.4rad"), Gaussian(0.4), space_of(ANGLE)),
    (Gaussian("7px"), Gaussian(0.5), space_of(PLACE)),
    (Gaussian(("7px", 0.25)), Gaussian((0.5, 0.25)), space_of(PLACE)),
    (Uniform("10%"), Uniform(0.1), space_of(ZOOM, ZOOM)),
    (Uniform(("10%", "7px", "14px")), Uniform((0.1, 0.5, 1.0)), space_of(ZOOM, PLACE)),
    (
        Independent(Uniform("30deg"), Gaussian("10%")),
        Independent(Uniform(math.radians(30)), Gaussian(0.1)),
        space_of(ANGLE, ZOOM),
    ),
]


@pytest.mark.parametrize(("law", "numbers", "space"), TEXT, ids=lambda value: repr(value)[:40])
def test_text_is_the_scale_that_is_sampled_and_certified(
    law: NoiseLaw, numbers: NoiseLaw, space: Space
) -> None:
    drawn, expected = (one.sample(100, space, Philox(3)) for one in (law, numbers))
    assert torch.equal(drawn, expected)
    assert law.resolved(space) == numbers
    assert law.describe(space) == numbers.describe(space)
    counts = Counts((10, 0), (950, 50))
    c, other = (one.certify(counts, space, 0.001) for one in (law, numbers))
    assert c.radii == other.radii
    assert c.radii[0] > 0
    assert c.law == law, "a run stores the law as it was given"
    for shift in np.random.default_rng(7).normal(scale=0.2, size=(50, space.dim)):
        assert c.covers(shift) == other.covers(shift)
    law.check_for_sampling(space)


def test_pixels_are_those_of_each_image() -> None:
    law = Gaussian("4px")
    for side in (16, 32):
        space = Space((PLACE,), (side, 2 * side))
        assert law.scales(space).tolist() == [8 / side] * 2
        assert law.resolved(space) == Gaussian(8 / side)


@pytest.mark.parametrize(
    ("law", "space", "words"),
    [
        (Gaussian("30deg"), space_of(PLACE), "'30deg'; it must be a length: e.g. 5px"),
        (Gaussian("30deg"), space_of(ANGLE, PLACE), "'30deg'; it must be a length"),
        (Uniform("4px"), space_of(ANGLE), "'4px'; it must be an angle"),
        (Uniform(("4px", "2%")), space_of(PLACE), "'2%'; it must be a length"),
        (Uniform("0deg"), space_of(ANGLE), "'0deg'; it must be positive, at least"),
        (Uniform("-3deg"), space_of(ANGLE), "'-3deg'; it must be positive, at least"),
        (Uniform("1e999px"), space_of(PLACE), "'1e999px'; it must be positive, at least"),
        (Uniform("200deg"), space_of(ANGLE), "must not exceed half the period"),
        (Uniform(("1px", "1px", "1px")), space_of(PLACE), "3 numbers; it must be one number"),
    ],
)
def test_text_that_is_no_scale_there(law: NoiseLaw, space: Space, words: str) -> None:
    for refused in (
        lambda: law.check(space),
        lambda: law.sample(1, space, Philox(0)),
        lambda: law.certify(Counts((1, 0), (9, 1)), space, 0.05),
    ):
        if "period" in words and refused.__code__.co_names[0] == "sample":
            continue  # as with numbers, the law is checked before
        with pytest.raises(InputError) as caught:
            refused()
        assert words in refusal(caught)


@pytest.mark.parametrize("text", ["30", "deg", "", "0.1 ", "30 apples", "nandeg", "30degpx"])
def test_text_without_a_unit_is_no_scale(text: str) -> None:
    for scale in (text, (text,), ("30deg", text)):
        with pytest.raises(InputError, match="or text with a unit such as '30deg'"):
            Uniform(scale)


@pytest.mark.parametrize(
    ("law", "space", "words"),
    [
        (Gaussian(20), space_of(ANGLE), "is 20 (1,146°); it must be at most π (180°)"),
        (Uniform(20), space_of(ANGLE), "write Uniform('20deg')"),
        (Uniform(30), space_of(ZOOM), "write Uniform('30%')"),
        (Gaussian(4), space_of(PLACE), "is 4 (56 px); it must be at most 2 half sides (28 px)"),
        (Gaussian((0.1, 4)), space_of(PLACE), "write Gaussian(('4px', …))"),
        (Independent(Uniform(20), Gaussian(0.1)), space_of(ANGLE, ZOOM), "Uniform('20deg')"),
    ],
)
def test_scales_that_make_no_sense_are_not_sampled_but_read(
    law: NoiseLaw, space: Space, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        law.check_for_sampling(space)
    assert words in refusal(caught)
    if "Uniform" not in repr(law):
        certificate = law.certify(Counts((10, 0), (950, 50)), space, 0.001)
        assert certificate.prediction == 0


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


def test_columns_of_independent_noise_are_those_of_its_laws() -> None:
    law, space = Independent(Uniform(0.5), Gaussian((0.3, 0.6))), space_of(ZOOM, PLACE)
    raw = torch.tensor([[0.25, 1.0, -1.0], [0.75, 0.0, 2.0]])
    # Uniform: (2 raw - 1) λ. Gaussian: raw σ.
    expected = torch.tensor([[-0.25, 0.3, -0.6], [0.25, 0.0, 1.2]])
    torch.testing.assert_close(law.params(raw, space), expected)
    drawn = law.raw(5, space, Philox(0))
    assert drawn.shape == (5, 3)
    assert drawn[:, 0].min() >= 0


def test_answers_are_refused_for_noise_that_does_not_suit_the_space() -> None:
    law, space, wide = Uniform(4.0), space_of(ANGLE), Region.parse("rotation<=10deg")
    calls: list[Callable[[], object]] = [
        lambda: law.covers(np.zeros((1, 1)), BARELY, space),
        lambda: law.covers_region(wide, BARELY, space),
        lambda: law.certify(Counts((1, 0), (9, 1)), space, 0.05),
    ]
    for call in calls:
        with pytest.raises(InputError, match="must not exceed half the period"):
            call()


class Ends:
    """A region of two shifts, one of which may be out of reach."""

    def __init__(self, *shifts: tuple[float, float]) -> None:
        self._shifts = shifts

    def shifts(self, space: Space) -> Iterator[Floats]:
        yield np.array(self._shifts)


def test_guarantee_a_region_is_covered_only_if_all_of_it_is() -> None:
    """Neither shift is farther than the other in both lost mass and length."""
    law, space = Independent(Uniform(1.0), Gaussian(0.3)), space_of(ZOOM, ZOOM)
    bound = decided(0.9)
    near, uniform, normal = (0.01, 0.01), (0.9, 0.0), (0.0, 0.5)
    assert law.covers_region(Ends(near), bound, space)
    for far in (uniform, normal):
        assert not law.covers(np.array([far]), bound, space)[0]
    assert not law.covers_region(Ends((0.1, 0.0), normal), bound, space)
    assert not law.covers_region(Ends((0.0, 0.1), uniform), bound, space)


def test_a_law_is_stratified_only_by_quantiles_of_its_own_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the noise that is sampled would not be the noise that is certified."""
    monkeypatch.setattr(NoiseLaw, "registry", dict(NoiseLaw.registry))

    class OtherDraws(Uniform):
        name = "other draws"

        def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
            return generator.normal(n, space.dim)

        def params(self, raw: torch.Tensor, space: Space) -> torch.Tensor:
            return super().params(torch.special.ndtr(raw), space)

    class Draws:
        raw = OtherDraws.raw

    class Mixed(Draws, Uniform):
        name = "mixed"

    class Wider(Uniform):
        name = "wider"

        def params(self, raw: torch.Tensor, space: Space) -> torch.Tensor:
            return 2 * super().params(raw, space)

    class Complete(OtherDraws):
        name = "complete"

        def quantiles(self, uniform: torch.Tensor, space: Space) -> torch.Tensor:
            return cast(torch.Tensor, torch.special.ndtri(uniform).float())

    for kind, stratified in (
        (Uniform, True),
        (OtherDraws, False),
        (Mixed, False),
        (Wider, True),
        (Complete, True),
    ):
        assert kind(0.5).can_stratify == stratified
        assert Independent(Gaussian(0.1), kind(0.5)).can_stratify == stratified

    class Narrow(Independent):
        name = "narrow"

        def raw(self, n: int, space: Space, generator: Generator) -> torch.Tensor:
            return 0.5 * super().raw(n, space, generator)

    assert not Narrow(Gaussian(0.1), Uniform(0.5)).can_stratify
