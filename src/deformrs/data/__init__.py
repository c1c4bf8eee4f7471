"""Labelled images to train on and to certify. Imports no torch; `load_digits` does when called."""

from deformrs.data.folders import load_image
from deformrs.data.image_set import HeldOut, ImageSet
from deformrs.data.loading import load_data
from deformrs.data.mnist import load_digits

__all__ = ["HeldOut", "ImageSet", "load_data", "load_digits", "load_image"]
