"""Classifiers to certify: they take pictures in [0, 1], normalisation is part of them."""

from deformrs.models.fixed import check_fixed
from deformrs.models.loading import load_model
from deformrs.models.parts import BuiltModel, LoadedModel, Precision
from deformrs.models.saved import save_model
from deformrs.models.small_cnn import SmallCNN

__all__ = [
    "BuiltModel",
    "LoadedModel",
    "Precision",
    "SmallCNN",
    "check_fixed",
    "load_model",
    "save_model",
]
