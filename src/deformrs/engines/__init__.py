"""What certifies a whole set of pictures."""

from deformrs.engines.local import certify_dataset
from deformrs.engines.looking import check_dataset, chosen

__all__ = ["certify_dataset", "check_dataset", "chosen"]
