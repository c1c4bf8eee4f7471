"""Pictures to train and certify on. Needs no torch, but for `load_digits`."""

from deformrs.data.base import HeldOut, PictureSet
from deformrs.data.digits import load_digits
from deformrs.data.folders import load_picture
from deformrs.data.loading import load_data

__all__ = ["HeldOut", "PictureSet", "load_data", "load_digits", "load_picture"]
