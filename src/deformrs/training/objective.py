"""What training minimises: the error under noise, and how much it depends on the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from deformrs.checks import check_whole, is_real
from deformrs.errors import InputError


@dataclass(frozen=True)
class Objective:
    """Cross-entropy over `copies` deformed copies of each picture, and what raises large radii.

    With ℓ₁ … ℓ_m the losses of the copies, p₁ … p_m the answers to them and p̄ their mean:

    `tilt` t > 0 takes (1/t) log mean exp(t ℓ_i) for the mean of the losses, so that the copies that
    go wrong count most: a certificate is lost by the few deformations that fool the network.
    (Tilted empirical risk: Li, Beirami, Sanjabi and Smith, 2021.)

    `consistency` adds consistency · mean KL(p̄ ‖ p_i) + entropy · H(p̄): the answer should not
    depend on the noise, and be sure (Jeong and Shin, 2020). It costs accuracy at small radii.

    More copies show a picture under more noise in each step, and cost as much more time.
    """

    copies: int = 1
    tilt: float = 0.0
    consistency: float = 0.0
    entropy: float = 0.5
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_whole("copies", self.copies, least=1)
        for name in ("tilt", "consistency", "entropy"):
            value = getattr(self, name)
            if not is_real(value) or value < 0:
                raise InputError(name, repr(value), "must be a number of at least 0", "e.g. 2")
        if not is_real(self.label_smoothing) or not 0 <= self.label_smoothing < 1:
            raise InputError("label_smoothing", self.label_smoothing, "must lie in [0, 1)", "0.1")
        if (self.consistency or self.tilt) and self.copies < 2:
            raise InputError(
                "copies",
                self.copies,
                "must be at least 2 for consistency and tilt, which compare them",
                "e.g. 2",
            )

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """scores: [copies · b, k], one copy of the whole batch after another; labels: [b] -> []."""
        losses = cross_entropy(
            scores,
            labels.repeat(self.copies),
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        if self.tilt:
            tilted = (self.tilt * losses).view(self.copies, len(labels)).logsumexp(dim=0)
            loss = (tilted - math.log(self.copies)).mean() / self.tilt
        else:
            loss = losses.mean()
        if not self.consistency:
            return loss
        logs = log_softmax(scores, dim=1).view(self.copies, len(labels), -1)
        # The mean of probabilities, by their logarithms: no underflow, and a gradient everywhere.
        mean = logs.logsumexp(dim=0) - math.log(self.copies)
        spread = kl_div(logs, mean.expand_as(logs), log_target=True, reduction="none")
        doubt = -(mean.exp() * mean).sum(dim=1)
        return loss + self.consistency * spread.sum(dim=2).mean() + self.entropy * doubt.mean()
