"""The smoothed classifier: sample a model under random deformations, predict, certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deformrs.certificate import Certificate, Counts
from deformrs.checks import check_alpha, check_whole
from deformrs.deformations import Deformation
from deformrs.errors import InputError, ModelError
from deformrs.geometry import Padding, warp
from deformrs.noise import NoiseLaw
from deformrs.randomness import Stage, noise_batches
from deformrs.statistics import METHODS, sign_test
from deformrs.units import Size


class SmoothedClassifier:
    """g(x) = the class that `model` answers most often when x is deformed at random.

    `model` maps N x C x H x W pictures in [0, 1] to N x K scores; normalisation is part of it.
    `deformation` says how pictures move, `noise` how its parameters are drawn, `padding` what
    lies outside the picture. `batch_size` changes speed and memory, not which noise is drawn.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_side(pictures):
    ...     left, right = pictures[..., :4], pictures[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_side, Rotation(), Uniform(0.5), num_classes=2)
    >>> g.certify(image, n=1000).prediction
    1
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        deformation: Deformation,
        noise: NoiseLaw,
        num_classes: int,
        *,
        padding: Padding = "zeros",
        batch_size: int = 256,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(deformation, Deformation):
            raise InputError("deformation", deformation, "must be a Deformation", "e.g. Rotation()")
        if not isinstance(noise, NoiseLaw):
            raise InputError("noise", noise, "must be a noise law", "e.g. Uniform(0.5)")
        check_whole("num_classes", num_classes, least=2)
        check_whole("batch_size", batch_size, least=1)
        self.model = model
        self.deformation = deformation
        self.noise = noise
        self.num_classes = num_classes
        self.padding = padding
        self.batch_size = batch_size
        self.device = None if device is None else torch.device(device)

    def certify(
        self,
        image: Tensor,
        n: int = 100_000,
        n0: int = 100,
        alpha: float = 1e-3,
        seed: int = 0,
        *,
        index: int = 0,
        method: str = "clopper_pearson",
    ) -> Certificate:
        """Certify the prediction for one picture.

        image: [c, h, w], floating point in [0, 1]. `n0` samples choose the class, `n` fresh ones
        bound its probability. `index` is the picture's number in its data set: pictures with
        different numbers get independent noise. `method` is a name from `deformrs.statistics`.

        Guarantee: the certificate is false with probability at most alpha.
        """
        check_alpha(alpha)
        if method not in METHODS:
            raise InputError("method", repr(method), "must be a known bound", ", ".join(METHODS))
        selection = self.count(image, n0, Stage.SELECT, seed=seed, index=index)
        estimation = self.count(image, n, Stage.ESTIMATE, seed=seed, index=index)
        space = self.deformation.space(_size(image))
        return self.noise.certify(Counts(selection, estimation), space, float(alpha), method)

    def predict(
        self,
        image: Tensor,
        n: int = 1000,
        alpha: float = 1e-3,
        seed: int = 0,
        *,
        index: int = 0,
        shift: Sequence[float] | None = None,
    ) -> int | None:
        """The smoothed prediction, or None: it abstains.

        With `shift`, the prediction for the picture under that deformation.

        Guarantee: the answer differs from the true most probable class with probability at most
        alpha (a two-sided binomial test between the two classes seen most often).
        """
        check_alpha(alpha)
        counts = self.count(image, n, Stage.PREDICT, seed=seed, index=index, shift=shift)
        second, first = sorted(range(self.num_classes), key=lambda c: (counts[c], -c))[-2:]
        return first if sign_test(counts[first], counts[second]) <= alpha else None

    @torch.inference_mode()
    def count(
        self,
        image: Tensor,
        n: int,
        stage: Stage,
        *,
        seed: int = 0,
        index: int = 0,
        shift: Sequence[float] | None = None,
    ) -> tuple[int, ...]:
        """How often the model answers each class over n deformations: K numbers.

        The counts stay on the device until the end, and memory does not grow with n.
        """
        _check_image(image)
        check_whole("n" if stage != Stage.SELECT else "n0", n, least=1)
        check_whole("seed", seed, least=0)
        check_whole("index", index, least=0)
        _check_evaluating(self.model)
        size = _size(image)
        space = self.deformation.space(size)
        self.noise.check(space)
        device = self.device or _device_of(self.model, image)
        image = image.to(device)
        centre = None
        if shift is not None:
            centre = torch.tensor(space.shifts(shift), dtype=torch.float32, device=device)

        counts = torch.zeros(self.num_classes, dtype=torch.int64, device=device)
        undefined = torch.zeros((), dtype=torch.bool, device=device)
        batches = noise_batches(
            self.noise, space, n, self.batch_size, device, seed=seed, index=index, stage=stage
        )
        for params in batches:
            if centre is not None:
                params = params + centre
            pictures = warp(image, self.deformation.field(params, size), self.padding)
            scores = self._scores(pictures)
            undefined |= scores.isnan().any()
            answers = scores.argmax(dim=1)
            counts.scatter_add_(0, answers, torch.ones_like(answers))
        # The one look at the results: asking after every batch would make the device wait.
        if undefined:
            raise ModelError(
                "a score of the model",
                "NaN",
                "must be a number",
                "check the weights, the precision and the input range",
            )
        return tuple(counts.tolist())

    def _scores(self, pictures: Tensor) -> Tensor:
        scores: object = self.model(pictures)
        wanted = (len(pictures), self.num_classes)
        if not isinstance(scores, Tensor):
            got = f"a {type(scores).__name__}"
        elif tuple(scores.shape) != wanted or not scores.is_floating_point():
            got = f"{scores.dtype} of shape {tuple(scores.shape)}"
        else:
            return scores
        raise ModelError(
            "the model's output",
            got,
            f"must be floating-point scores of shape {wanted}",
            "set num_classes to what the model returns, or wrap the model",
        )


def _size(image: Tensor) -> Size:
    return image.shape[-2], image.shape[-1]


def _check_image(image: Tensor) -> None:
    if not isinstance(image, Tensor):
        raise InputError(
            "image", f"a {type(image).__name__}", "must be a torch.Tensor", "use torch.as_tensor"
        )
    if image.ndim != 3 or image.numel() == 0:
        raise InputError(
            "image",
            f"of shape {tuple(image.shape)}",
            "must be one non-empty picture, C x H x W",
            "pass pictures one at a time, image[None] for a single channel",
        )
    if not image.is_floating_point():
        raise InputError(
            "image", f"of type {image.dtype}", "must be floating point", "image.float() / 255"
        )
    low, high = torch.aminmax(image)
    if not (low >= 0 and high <= 1):  # NaN fails both
        raise InputError(
            "image",
            "not a number somewhere" if image.isnan().any() else f"in [{low:g}, {high:g}]",
            "must lie in [0, 1]",
            "divide by 255, and leave normalisation to the model",
        )


def _check_evaluating(model: Callable[[Tensor], Tensor]) -> None:
    if isinstance(model, nn.Module) and any(module.training for module in model.modules()):
        raise ModelError(
            "the model",
            "in training mode",
            "must be fixed: dropout and batch statistics would change it from sample to sample",
            "call model.eval()",
        )


def _device_of(model: Callable[[Tensor], Tensor], image: Tensor) -> torch.device:
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            return parameter.device
    return image.device
