"""The two compositions of the paper, as regions that a certificate can be asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deformrs.regions import Region
from deformrs.report.coverage import Covered, covered
from deformrs.report.groups import lookup
from deformrs.runs import Result, StoredRun

Route = Literal["affine", "composed"]
ROUTES: tuple[Route, ...] = ("affine", "composed")

# Above the square root of 0.1, so that |t|^2 <= 0.1 is all inside.
_SHIFT = "shift<=0.3162277661"


@dataclass(frozen=True)
class Composition:
    """A published set of transformations. `published` is what published.csv calls it.

    `orders` are texts of regions that have the same maps, each for compositions that the image
    undergoes in its order; the first stands for all.
    """

    name: str
    published: str
    orders: tuple[str, ...]

    @property
    def text(self) -> str:
        """The region as one types it."""
        return self.orders[0]

    def asked(self, results: Sequence[Result]) -> Covered:
        """Guarantee: counts only right images whose certificate covers the whole composition.

        There is no count where the run's deformation cannot be asked, and a reason instead.
        """
        answers = [covered(results, Region.parse(text)) for text in self._fitting(results)]
        return next((answer for answer in answers if answer.count is not None), answers[0])

    def settled_by(self, run: StoredRun) -> bool:
        """Was it settled, or sampled for? Not where sampling stopped when something else was."""
        if "stopping" not in run.config or lookup(run.config, "stopping", "tolerance") is not None:
            return True
        asked = lookup(run.config, "stopping", "regions")
        texts = {"".join(str(text).split()) for text in (asked if isinstance(asked, list) else [])}
        return any("".join(order.split()) in texts for order in self.orders)

    def _fitting(self, results: Sequence[Result]) -> tuple[str, ...]:
        """An affine map is what it is in whatever order; a composed one has its own."""
        families = [block.family for block in results[0].certificate.space.blocks]
        return self.orders[:1] if families == ["affine"] else self.orders


COMPOSITIONS = (
    # The paper's map is R(theta) times the shear: the image is turned first. The other order
    # has other maps.
    Composition(
        "rotation+shear",
        "rotations up to 2° with shears from 0 to 2 %",
        ("rotation<=2deg, shear=0%..2%",),
    ),
    # The paper's map is p -> alpha R(theta) p + t. These orders give the same set of maps: a turn
    # changes no length of a shift, but a zoom that comes before the shift would.
    Composition(
        "rotation+scaling+translation",
        "rotations up to 10° with zooms from 0.8 to 1.2 and shifts of a squared length up to 0.1",
        (
            f"{_SHIFT}, rotation<=10deg, scale=0.8..1.2",
            f"{_SHIFT}, scale=0.8..1.2, rotation<=10deg",
            f"rotation<=10deg, {_SHIFT}, scale=0.8..1.2",
        ),
    ),
)
