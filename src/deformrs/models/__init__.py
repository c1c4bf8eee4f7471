"""Classifiers to train and to certify: they take pictures in [0, 1], normalised inside."""

from deformrs.models.fixed import check_fixed
from deformrs.models.loading import load_model
from deformrs.models.parts import BuiltModel, LoadedModel
from deformrs.models.precision import Precision, PrecisionAsked
from deformrs.models.resnet import ResNet18, ResNet50
from deformrs.models.saved import save_model
from deformrs.models.scoring import check_scores
from deformrs.models.small_cnn import SmallCNN
from deformrs.models.starting import Start, start_model

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
