"""Classifiers to train and to certify: they take images in [0, 1], normalised inside."""

from deformrs.models.determinism import check_fixed, check_scores
from deformrs.models.initial import Start, start_model
from deformrs.models.networks import ResNet18, ResNet50, SmallCNN
from deformrs.models.precision import Precision, PrecisionAsked
from deformrs.models.saved import save_model
from deformrs.models.sources import load_model
from deformrs.models.types import BuiltModel, LoadedModel

__all__ = [
    "BuiltModel",
    "LoadedModel",
    "Precision",
    "PrecisionAsked",
    "ResNet18",
    "ResNet50",
    "SmallCNN",
    "Start",
    "check_fixed",
    "check_scores",
    "load_model",
    "save_model",
    "start_model",
]
