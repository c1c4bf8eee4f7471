"""Noise laws: what is sampled, and what that certifies."""

from deformrs.noise.gaussian import Gaussian
from deformrs.noise.independent import Independent
from deformrs.noise.law import NoiseLaw
from deformrs.noise.uniform import Uniform

__all__ = ["Gaussian", "Independent", "NoiseLaw", "Uniform"]
