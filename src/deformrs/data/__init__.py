"""Labelled images to train on and to certify. Imports no torch; `load_digits` does when called."""

from deformrs.data.digits import load_digits
from deformrs.data.folders import load_image
from deformrs.data.image_set import HeldOut, ImageSet
from deformrs.data.loading import load_data

__all__ = ["HeldOut", "ImageSet", "load_data", "load_digits", "load_image"]
