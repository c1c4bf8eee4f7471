"""What the page needs to deform an image itself, and to say what its certificate covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deformrs.config import Config
from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
from deformrs.report.groups import Group, Member
from deformrs.runs import Result
from deformrs.units import Unit, unit_px

Joint = str | None


def turning_data(group: Group) -> Config:
    """Return the deformation, and for each block of parameters its family, number and unit.

    `scale` is the number of displayed units in the one that the parameters have; None where it
    depends on the image: pixels in half a side.
    """
    blocks: list[Any] = [
        {
            "family": block.family,
            "dim": block.dim,
            "unit": block.unit.symbol,
            "decimals": block.unit.decimals,
            "scale": None if block.unit is Unit.LENGTH else block.unit.factor((2, 2)),
        }
        for block in group.blocks
    ]
    return {"deformation": group.deformation, "blocks": blocks}


def cover_data(member: Member, results: Sequence[Result]) -> Config:
    """Return how the page decides from the radii of an image whether parameters are certified.

    `norm` is that in which the radius of a block is measured. `joint` says when parameters of
    several blocks are certified: "sum" if the shares of their radii add up to at most 1, "root"
    if those of their squares do. Both hold by the convexity of the certified set: of uniform noise
    a product of linear functions, of Gaussian noise an ellipsoid. None: the radii do not say.

    Guarantee: the page calls no parameters certified that the certificate does not cover.
    """
    certificate = results[0].certificate
    sides = [unit_px(result.certificate.space.size) for result in results]
    return {
        "padding": member.run.config.get("padding", "zeros"),
        "norm": [certificate.law.norm(k) for k in range(len(certificate.space.blocks))],
        "joint": joint_of(certificate.law),  # type: ignore[arg-type]
        "half": sides[0] if len(set(sides)) == 1 else list(sides),
    }


def joint_of(law: NoiseLaw) -> Joint:
    """Return how the shares of several blocks add up, as `cover_data` says."""
    laws = law.laws if isinstance(law, Independent) else (law,)
    if all(isinstance(one, Uniform) for one in laws):
        return "sum"
    return "root" if all(isinstance(one, Gaussian) for one in laws) else None
