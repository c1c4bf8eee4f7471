"""Stopping rules, and whether certificates hold for their queries."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Certificate, Counts
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.regions import Region
from deformrs.rule import Rule
from deformrs.space import Block, Space
from deformrs.statistics import Method
from deformrs.stopping import Stopping
from deformrs.units import Unit

Integers = NDArray[np.int64]

ANGLE = Space((Block("rotation", 1, Unit.ANGLE, 2 * math.pi),), (28, 28))
ZOOM = Space((Block("scaling", 1, Unit.FRACTION),), (28, 28))
PLACE = Space((Block("translation", 2, Unit.LENGTH),), (28, 28))
AFFINE = Space((Block("affine", 6, Unit.COEFFICIENT),), (28, 28))
BOTH = Space((*ANGLE.blocks, *PLACE.blocks), (28, 28))

CASES: dict[str, tuple[NoiseLaw, Space, Stopping]] = {
    "uniform": (Uniform(0.4), ZOOM, Stopping(radii=("0%", "12%", 0.3))),
    "arc": (Uniform(math.radians(54)), ANGLE, Stopping(radii=("10deg", "45deg", "60deg"))),
    "wide arc": (Uniform(2.8), ANGLE, Stopping(radii=("30deg", "180deg"))),
    "circle": (Uniform(math.pi), ANGLE, Stopping(radii=("180deg",))),
    "gaussian": (Gaussian(0.2), PLACE, Stopping(radii=("2px", "7px"), regions=("shift<=4px",))),
    "angle": (Gaussian(0.5), ANGLE, Stopping(radii=("20deg", "170deg"))),
    "independent": (
        Independent(Uniform(0.9), Gaussian(0.3)),
        BOTH,
        Stopping(regions=("rotation<=10deg, shift<=1px", Region.parse("shift<=4px"))),
    ),
    "affine": (Gaussian(0.4), AFFINE, Stopping(regions=("scale=0.9..1.1, rotation<=5deg",))),
}
# With a single query each.
ONE: dict[str, tuple[NoiseLaw, Space, Stopping]] = {
    "10deg of 54": (Uniform(math.radians(54)), ANGLE, Stopping(radii=("10deg",))),
    "45deg of 54": (Uniform(math.radians(54)), ANGLE, Stopping(radii=("45deg",))),
    "5px": (Gaussian(0.5), PLACE, Stopping(radii=("5px",))),
    "region": (*CASES["independent"][:2], Stopping(regions=("rotation<=10deg, shift<=1px",))),
}
_ALL = CASES | ONE


def certificate(
    case: str, hits: int, trials: int, alpha: float, method: str = "anytime"
) -> Certificate:
    law, space, _ = _ALL[case]
    return law.certify(Counts((1, 0), (hits, trials - hits)), space, alpha, method)


def answers(case: str, certificate: Certificate) -> list[bool]:
    """Return whether the certificate holds for each query of the case."""
    _, _, stopping = _ALL[case]
    decided = certificate.prediction is not None
    units = {"deg": math.pi / 180, "%": 0.01, "px": 1 / 14}
    held = []
    for radius in stopping.radii:
        text = str(radius)
        factor = next((f for unit, f in units.items() if text.endswith(unit)), 1.0)
        held.append(decided and certificate.radius >= float(text.rstrip("deg%px")) * factor)
    for region in stopping.regions:
        region = Region.parse(region) if isinstance(region, str) else region
        held.append(decided and certificate.covers_region(region))
    return held


@functools.cache
def rule_of(case: str, alpha: float, n: int, *, last_look: bool = True) -> Rule:
    law, space, stopping = _ALL[case]
    return rule_for(stopping, law, space, alpha, n, last_look=last_look)


def rule_for(
    stopping: Stopping,
    law: NoiseLaw,
    space: Space,
    alpha: float,
    n: int,
    *,
    last_look: bool = True,
) -> Rule:
    """Return the rule for independent samples, with p_B = 1 - p_A."""
    method = Method.parse(f"anytime:{n}" if last_look else "anytime")
    return stopping.rule(law, space, alpha, n, method)


def thresholds(case: str) -> tuple[float, ...]:
    """Return the lower bounds on p_A from which on each query is certified, if p_B = 1 - p_A."""
    law, space, stopping = _ALL[case]
    return stopping.thresholds(law, space)


def decided(rule: Rule, hits: Integers, trials: Integers) -> NDArray[np.bool_]:
    """Ask the rule about images of two classes, the first of which is the candidate."""
    selection = np.tile([1, 0], (len(hits), 1))
    return rule.decided(selection, np.stack([hits, trials - hits], axis=1))


def is_decided(rule: Rule, hits: int, trials: int) -> bool:
    return bool(decided(rule, np.array([hits]), np.array([trials]))[0])
