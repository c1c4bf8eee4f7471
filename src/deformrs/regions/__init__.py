"""Sets of transformations as people say them, and what it takes to certify all of one."""

from deformrs.regions.enclosure import Patch, Region
from deformrs.regions.factors import Rotate, ShearBy, Shift, Zoom

__all__ = ["Patch", "Region", "Rotate", "ShearBy", "Shift", "Zoom"]
