"""Images to train and certify on. Needs no torch, but for `load_digits`."""

from deformrs.data.base import HeldOut, ImageSet
from deformrs.data.digits import load_digits
from deformrs.data.folders import load_image
from deformrs.data.loading import load_data

__all__ = ["HeldOut", "ImageSet", "load_data", "load_digits", "load_image"]
