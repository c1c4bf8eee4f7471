"""deformrs: certified robustness of image classifiers to deformations.

>>> import math
>>> from deformrs import Rotation, Uniform
>>> Rotation(), Uniform(math.radians(180))
(Rotation(), Uniform(scale=3.141592653589793))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deformrs.certificate import Bound, Certificate, Counts
    from deformrs.data import load_data
    from deformrs.data.preparation import Preparation
    from deformrs.dataset import certify_dataset
    from deformrs.deformations import (
        DCT,
        Affine,
        Compose,
        Deformation,
        Rotation,
        Scaling,
        Shear,
        Translation,
        VectorField,
    )
    from deformrs.engines import RayEngine
    from deformrs.errors import DeformRSError
    from deformrs.job import certify
    from deformrs.models import load_model
    from deformrs.noise import Gaussian, Independent, NoiseLaw, Uniform
    from deformrs.plan import SamplingPlan
    from deformrs.regions import Patch, Region
    from deformrs.report.export import results_frame
    from deformrs.report.figures import curve
    from deformrs.report.gallery import gallery
    from deformrs.runs import Result, load_run
    from deformrs.smoothing import SmoothedClassifier
    from deformrs.stopping import Stopping
    from deformrs.training import train

__version__ = "0.1.0"

_HOMES = {
    "certificate": ("Bound", "Certificate", "Counts"),
    "data": ("load_data",),
    "deformations": (
        "Affine",
        "Compose",
        "DCT",
        "Deformation",
        "Rotation",
        "Scaling",
        "Shear",
        "Translation",
        "VectorField",
    ),
    "dataset": ("certify_dataset",),
    "engines": ("RayEngine",),
    "errors": ("DeformRSError",),
    "job": ("certify",),
    "models": ("load_model",),
    "plan": ("SamplingPlan",),
    "noise": ("Gaussian", "Independent", "NoiseLaw", "Uniform"),
    "data.preparation": ("Preparation",),
    "regions": ("Patch", "Region"),
    "report.export": ("results_frame",),
    "report.figures": ("curve",),
    "report.gallery": ("gallery",),
    "runs": ("Result", "load_run"),
    "smoothing": ("SmoothedClassifier",),
    "stopping": ("Stopping",),
    "training": ("train",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DCT",
    "Affine",
    "Bound",
    "Certificate",
    "Compose",
    "Counts",
    "DeformRSError",
    "Deformation",
    "Gaussian",
    "Independent",
    "NoiseLaw",
    "Patch",
    "Preparation",
    "RayEngine",
    "Region",
    "Result",
    "Rotation",
    "SamplingPlan",
    "Scaling",
    "Shear",
    "SmoothedClassifier",
    "Stopping",
    "Translation",
    "Uniform",
    "VectorField",
    "certify",
    "certify_dataset",
    "curve",
    "gallery",
    "load_data",
    "load_model",
    "load_run",
    "results_frame",
    "train",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: certificates can be read without torch."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'deformrs' has no attribute {name!r}")
    return getattr(import_module(f"deformrs.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
