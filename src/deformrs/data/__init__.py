"""Pictures to train and certify on. Needs no torch, but for `load_digits`."""

from deformrs.data.base import PictureSet
from deformrs.data.digits import load_digits
from deformrs.data.held_out import HeldOut
from deformrs.data.loading import load_data
from deformrs.data.pictures import load_picture

__all__ = ["HeldOut", "PictureSet", "load_data", "load_digits", "load_picture"]
