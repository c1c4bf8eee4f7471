"""A smoothed classifier with the methods of the Adversarial Robustness Toolbox (ART)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deformrs.deformations import Compose
from deformrs.errors import InputError, UnsupportedError
from deformrs.plan import SamplingPlan, seed_or_fresh
from deformrs.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class RandomizedSmoothing:
    """`certify` and `predict` as of ART's `PyTorchRandomizedSmoothing`, for deformations.

    `n` is the number of samples of `predict`, `n0` of those that select the class in `certify`;
    ART calls both `sample_size`. ART need not be installed.

    Images are arrays in [0, 1], [b, c, h, w]. Each call draws its noise from a fresh seed: give one
    only to repeat a result. An image's place in the array is its index, so that images get
    different noise. `batch_size` is by default that of the classifier.

    >>> import numpy as np
    >>> from deformrs import Rotation, Uniform
    >>> bright = lambda x: x.mean((2, 3)) @ x.new_tensor([[-1.0, 1.0]]) + x.new_tensor([0.5, 0.0])
    >>> smoothing = RandomizedSmoothing(SmoothedClassifier(bright, Rotation(), Uniform(0.5)))
    >>> images = np.stack([np.zeros((1, 8, 8)), np.ones((1, 8, 8))])
    >>> predictions, radii = smoothing.certify(images, n=1000)
    >>> predictions, bool((radii > 0.4).all())
    (array([0, 1]), True)
    >>> smoothing.predict(images)
    array([[1., 0.],
           [0., 1.]])
    """

    classifier: SmoothedClassifier
    n: int = 1000
    n0: int = 100
    alpha: float = 1e-3

    def __post_init__(self) -> None:
        SamplingPlan(self.n, self.n0, self.alpha, seed=0)  # raises for what is invalid
        if isinstance(self.classifier.deformation, Compose):
            raise UnsupportedError(
                "the deformation",
                repr(self.classifier.deformation),
                "must have one radius in ART: a composition has one for each part",
                "use SmoothedClassifier.certify, whose certificates have radii",
            )

    def certify(
        self, x: NDArray[np.generic], n: int, batch_size: int | None = None, seed: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the prediction and the certified radius of each image from `n` samples.

        An image that abstains has prediction -1 and radius 0. Radii are rounded down, and in the
        unit of the parameters: radians, halves of the shorter image side (translations, vector
        fields), fractions (scaling, shear), or coefficients. They bound the l1 norm of a shift for
        uniform noise, the l2 norm for Gaussian noise.

        They stay double precision as in ART: NumPy would round a threshold that is compared with
        single precision, and so could pass it.

        Guarantee: each pair is false with probability at most alpha.
        """
        plan = SamplingPlan(n, self.n0, self.alpha, seed_or_fresh(seed))
        certificates = self._classifier_for(x, batch_size).certify_batch(x, plan=plan)
        predictions = [-1 if c.prediction is None else c.prediction for c in certificates]
        return np.array(predictions, np.int64), np.array([c.radius for c in certificates])

    def predict(
        self, x: NDArray[np.generic], batch_size: int | None = None, seed: int | None = None
    ) -> NDArray[np.float64]:
        """Return a row for each image, 1 at its class: [b, num_classes]. Zeros where it abstains.

        Guarantee: each class differs from the most probable one with probability at most alpha.
        """
        classifier, seed = self._classifier_for(x, batch_size), seed_or_fresh(seed)
        predictions = [
            classifier.predict(image, self.n, self.alpha, seed, index=index)
            for index, image in enumerate(x)
        ]
        rows = np.zeros((len(x), classifier.num_classes or 0))
        for row, prediction in zip(rows, predictions, strict=True):
            if prediction is not None:
                row[prediction] = 1
        return rows

    def _classifier_for(self, x: NDArray[np.generic], batch_size: int | None) -> SmoothedClassifier:
        if np.ndim(x) != 4:
            raise InputError(
                "x", f"of shape {np.shape(x)}", "must be [b, c, h, w]", "x[None] for a single image"
            )
        if batch_size is None:
            return self.classifier
        return replace(self.classifier, batch_size=batch_size)
