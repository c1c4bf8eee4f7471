"""Classifiers to train and to certify: they take images in [0, 1], normalised inside."""

from deformrs.models.determinism import check_fixed, check_scores
from deformrs.models.initial import InitialNetwork, initial_network
from deformrs.models.networks import ResNet18, ResNet50, SmallCNN
from deformrs.models.precision import Precision, PrecisionAsked
from deformrs.models.saved import save_model
from deformrs.models.sources import load_model
from deformrs.models.types import LoadedModel, NetworkSpec

BuiltModel = NetworkSpec  # the name that users' factories of version 0.1 import

__all__ = [
    "BuiltModel",
    "InitialNetwork",
    "LoadedModel",
    "NetworkSpec",
    "Precision",
    "PrecisionAsked",
    "ResNet18",
    "ResNet50",
    "SmallCNN",
    "check_fixed",
    "check_scores",
    "initial_network",
    "load_model",
    "save_model",
]
