"""Training classifiers under the noise they will be certified with."""

from deformrs.training.simple import Step, train

__all__ = ["Step", "train"]
