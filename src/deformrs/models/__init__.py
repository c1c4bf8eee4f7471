"""Classifiers to train and to certify: from run folders, Python files, libraries and model files.

They take images in [0, 1] and include their normalisation.
"""

from deformrs.determinism import check_fixed
from deformrs.models.inference import Precision, PrecisionChoice
from deformrs.models.initial import InitialNetwork, check_num_classes, initial_network
from deformrs.models.networks import ResNet18, ResNet50, SmallCNN
from deformrs.models.saved import save_model
from deformrs.models.sources import load_model
from deformrs.models.types import Classifier, LoadedModel, NetworkSpec

BuiltModel = NetworkSpec  # the name that users' factories of version 0.1 import

__all__ = [
    "BuiltModel",
    "Classifier",
    "InitialNetwork",
    "LoadedModel",
    "NetworkSpec",
    "Precision",
    "PrecisionChoice",
    "ResNet18",
    "ResNet50",
    "SmallCNN",
    "check_fixed",
    "check_num_classes",
    "initial_network",
    "load_model",
    "save_model",
]
