"""Parameter spaces and bounds to try noise laws on."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from deformrs.certificate import Bound
from deformrs.rounding import complement_up
from deformrs.space import Block, Space
from deformrs.units import Unit

Floats = NDArray[np.float64]

TURN = 2 * math.pi
ANGLE = Block("rotation", 1, Unit.ANGLE, TURN)
ZOOM = Block("scaling", 1, Unit.FRACTION)
PLACE = Block("translation", 2, Unit.LENGTH)


def space_of(*blocks: Block) -> Space:
    return Space(blocks, (28, 28))


def decided(lower: float) -> Bound:
    """p_B = 1 - p_A."""
    return Bound(lower, complement_up(lower))


BARELY = decided(math.nextafter(0.5, 1))
