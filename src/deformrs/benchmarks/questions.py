"""What a trained classifier is asked while samples are counted."""

from __future__ import annotations

from dataclasses import dataclass

from deformrs.checks import check_integer
from deformrs.space import Space
from deformrs.stopping import Stopping


@dataclass(frozen=True)
class Questions:
    """What is asked: of how many images, at which radii."""

    n: int
    subset: int
    radius: str = "10deg"
    radii: tuple[str, ...] = ("0deg", "10deg", "30deg", "45deg")
    tolerance: str = "1deg"
    whole: bool = False
    """Also decide for all images, of which fixed samples would take too long."""

    def __post_init__(self) -> None:
        check_integer("n", self.n, least=1)
        check_integer("subset", self.subset, least=1)
        Stopping(radii=self.radii)  # raises where there are none

    def check(self, space: Space) -> None:
        """Raise if they cannot be asked of certificates over that space."""
        Stopping(radii=(self.radius, *self.radii), tolerance=self.tolerance).check(space)

    @property
    def protocols(self) -> int:
        """How many ways to ask are compared."""
        return 8 if self.whole else 5
