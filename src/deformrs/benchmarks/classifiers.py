"""The classifier of a case, as people make one."""

from __future__ import annotations

import torch

from deformrs.benchmarks.networks import CLASSES, Network
from deformrs.benchmarks.plan import FAMILIES, Case, Execution
from deformrs.smoothing import SmoothedClassifier


def classifier_of(network: Network, case: Case, family: str, how: Execution) -> SmoothedClassifier:
    """On its device, not compiled yet."""
    device = torch.device(how.device)
    deformation, noise = FAMILIES[family]
    return SmoothedClassifier(
        network.loaded(how.precision, device).module,
        deformation,
        noise,
        CLASSES,
        batch_size=case.batch_size,
        device=device,
        compiled=how.compiled,
    )
