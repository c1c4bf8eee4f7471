"""Classifiers to certify. Normalisation is part of each: they take pictures in [0, 1]."""

from deformrs.models.small_cnn import SmallCNN

__all__ = ["SmallCNN"]
