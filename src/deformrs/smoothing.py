"""The smoothed classifier: sample a model under random deformations, predict, certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deformrs.certificate import Certificate, Counts
from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.deformations import Deformation
from deformrs.errors import DeformRSError, InputError, ModelError
from deformrs.geometry import Padding, check_padding, check_pictures, size_of, warp
from deformrs.noise import NoiseLaw
from deformrs.randomness import Stage, noise_batches
from deformrs.statistics import check_method, sign_test

Watch = Callable[[int], None]
"""Called after every batch with the number of samples in it."""


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
        if not callable(model) or isinstance(model, type):
            raise InputError(
                "model", repr(model), "must map pictures to scores", "pass a module or a function"
            )
        if not isinstance(deformation, Deformation):
            raise InputError("deformation", deformation, "must be one", "e.g. Rotation()")
        if not isinstance(noise, NoiseLaw):
            raise InputError("noise", noise, "must be a noise law", "e.g. Uniform(0.5)")
        deformation.check_registered()
        noise.check_registered()
        check_whole("num_classes", num_classes, least=2)
        check_whole("batch_size", batch_size, least=1)
        check_padding(padding)
        self.model = model
        self.deformation = deformation
        self.noise = noise
        self.num_classes = num_classes
        self.padding = padding
        self.batch_size = batch_size
        self.device = None if device is None else _as_device(device)

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
        watch: Watch | None = None,
    ) -> Certificate:
        """Certify the prediction for one picture.

        image: [c, h, w], floating point in [0, 1]. `n0` samples choose the class, `n` fresh ones
        bound its probability. `index` is the picture's number in its data set, so that different
        pictures get different noise. `method` is a name from `deformrs.statistics`, to be chosen
        before the counts are seen. `watch` is told how far it is, a batch at a time.

        Guarantee: the certificate is false with probability at most alpha.
        """
        check_alpha(alpha)
        check_method(method)
        selection = self.count(image, n0, Stage.SELECT, seed=seed, index=index, watch=watch)
        estimation = self.count(image, n, Stage.ESTIMATE, seed=seed, index=index, watch=watch)
        space = self.deformation.space(size_of(image))
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
        watch: Watch | None = None,
    ) -> tuple[int, ...]:
        """How often the model answers each class over n deformations: K numbers.

        The counts stay on the device until the end, and memory does not grow with n.
        """
        check_pictures("image", image, rank=3)
        check_whole("n0" if stage == Stage.SELECT else "n", n, least=1)
        check_seed("seed", seed)
        check_seed("index", index)
        check_evaluating(self.model)
        size = size_of(image)
        space = self.deformation.space(size)
        self.noise.check(space)
        device = self.device_for(image)
        image = image.detach().to(device)
        centre = torch.zeros(1, 1, device=device)
        if shift is not None:
            centre = torch.tensor(space.reduced(space.as_shift(shift)), device=device).float()

        counts = torch.zeros(self.num_classes, dtype=torch.int64, device=device)
        undefined = torch.zeros((), dtype=torch.bool, device=device)
        batches = noise_batches(
            self.noise, space, n, self.batch_size, device, seed=seed, index=index, stage=stage
        )
        for params in batches:
            field = self.deformation.field(params + centre, size)
            scores = self._scores(warp(image, field, self.padding))
            best, answers = scores.max(dim=1)
            undefined |= ~best.isfinite().all()  # the largest of a row with NaN is NaN
            counts.scatter_add_(0, answers, torch.ones_like(answers))
            if watch is not None:
                watch(len(answers))
        # The one look at the results: asking after every batch would make the device wait.
        if undefined:
            raise ModelError(
                "a score of the model",
                "NaN or infinite",
                "must be a number",
                "check the weights, the precision and the input range",
            )
        return tuple(counts.tolist())

    @torch.inference_mode()
    def answer(self, image: Tensor) -> int:
        """What the model itself answers to the picture as it is. No guarantee comes with it."""
        check_pictures("image", image, rank=3)
        check_evaluating(self.model)
        device = self.device_for(image)
        return int(self._scores(image.detach().to(device)[None]).argmax())

    def device_for(self, image: Tensor) -> torch.device:
        """Where that picture is sampled: the device asked for, the network's, or its own."""
        if self.device is None and isinstance(self.model, nn.Module):
            for parameter in self.model.parameters():
                return parameter.device
        return self.device or image.device

    def _scores(self, pictures: Tensor) -> Tensor:
        scores = scores_of(self.model, pictures)
        wanted = (len(pictures), self.num_classes)
        if tuple(scores.shape) != wanted:
            raise ModelError(
                "the model's output",
                f"of shape {tuple(scores.shape)}",
                f"must be floating-point scores of shape {wanted}",
                "set num_classes to what the model returns, or wrap the model",
            )
        return scores


def scores_of(model: Callable[[Tensor], Tensor], pictures: Tensor) -> Tensor:
    """What the model answers to pictures: [n, k], or an error that says what went wrong."""
    try:
        scores: object = model(pictures)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _no_memory(pictures) from error
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, DeformRSError):
            raise
        if "allocate memory" in str(error):  # what a CPU runs out of has no exception of its own
            raise _no_memory(pictures) from error
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise ModelError(
            "the model's answer",
            f"an error ({reason})",
            f"must be scores for {pictures.dtype} pictures of shape {tuple(pictures.shape)} "
            f"on {pictures.device}",
            "give the image the precision, channels and size that the model wants",
        ) from error
    if not isinstance(scores, Tensor):
        got = f"a {type(scores).__name__}"
    elif scores.ndim != 2 or len(scores) != len(pictures) or not scores.is_floating_point():
        got = f"{scores.dtype} of shape {tuple(scores.shape)}"
    else:
        return scores
    raise ModelError(
        "the model's output",
        got,
        f"must be floating-point scores of shape ({len(pictures)}, number of classes)",
        "wrap the model so that it returns them",
    )


def _no_memory(pictures: Tensor) -> ModelError:
    count, channels, height, width = pictures.shape
    return ModelError(
        "the memory of the device",
        f"too small for {count} pictures of {channels} x {height} x {width} at once",
        "must hold a batch",
        "choose a smaller batch size, or resize the pictures",
    )


def check_evaluating(model: Callable[[Tensor], Tensor]) -> None:
    """Raise for a module in training mode, also behind a bound method.

    What a function does inside cannot be seen: there the caller must see to it.
    """
    module = getattr(model, "__self__", model)
    if isinstance(module, nn.Module) and any(part.training for part in module.modules()):
        raise ModelError(
            "the model",
            "in training mode",
            "must be fixed: dropout and batch statistics would change it from sample to sample",
            "call model.eval()",
        )


def _as_device(device: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            "device", repr(device), f"cannot be used here ({reason})", "e.g. 'cpu'"
        ) from error
