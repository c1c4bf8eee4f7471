"""Pictures to train and certify on."""

from deformrs.data.digits import load_digits

__all__ = ["load_digits"]
