"""Families of deformations, one per file."""

from deformrs.deformations.affine import Affine
from deformrs.deformations.compose import Compose
from deformrs.deformations.dct import DCT
from deformrs.deformations.deformation import Deformation
from deformrs.deformations.rotation import Rotation
from deformrs.deformations.scaling import Scaling
from deformrs.deformations.shear import Shear
from deformrs.deformations.translation import Translation
from deformrs.deformations.vector_field import VectorField

__all__ = [
    "DCT",
    "Affine",
    "Compose",
    "Deformation",
    "Rotation",
    "Scaling",
    "Shear",
    "Translation",
    "VectorField",
]
