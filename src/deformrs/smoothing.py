"""The smoothed classifier: sample a model under random deformations, predict, certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deformrs.certificate import Certificate
from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.execution import Compiled, check_evaluating, usable_device
from deformrs.geometry import Padding, check_images, check_padding, size_of
from deformrs.noise import NoiseLaw
from deformrs.protocol import counts_of, method_for
from deformrs.randomness import Span, Stage
from deformrs.sampling import Sampler, Watch
from deformrs.space import Space
from deformrs.statistics import sign_test
from deformrs.stopping import Rule, Stopping


class SmoothedClassifier:
    """g(x) = the class that `model` answers most often when x is deformed at random.

    `model` maps N x C x H x W images in [0, 1] to N x K scores; normalisation is part of it.
    `deformation` says how images move, `noise` how its parameters are drawn, `padding` what
    lies outside the image. `batch_size` and `compiled` change speed and memory, not which noise
    is drawn.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_side(images):
    ...     left, right = images[..., :4], images[..., 4:]
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
        compiled: Compiled = "no",
        device: torch.device | str | None = None,
    ) -> None:
        if not callable(model) or isinstance(model, type):
            raise InputError(
                "model", repr(model), "must map images to scores", "pass a module or a function"
            )
        if not isinstance(deformation, Deformation):
            raise InputError("deformation", deformation, "must be one", "e.g. Rotation()")
        if not isinstance(noise, NoiseLaw):
            raise InputError("noise", noise, "must be a noise law", "e.g. Uniform(0.5)")
        deformation.check_registered()
        noise.check_registered()
        check_integer("num_classes", num_classes, least=2)
        check_integer("batch_size", batch_size, least=1)
        check_padding(padding)
        self.sampler = Sampler(
            model,
            deformation,
            noise,
            num_classes,
            padding=padding,
            batch_size=batch_size,
            how=compiled,
        )
        self._rules: dict[tuple[Stopping, Space, float, int, str], Rule] = {}
        self.device = None if device is None else usable_device(device)

    # What is certified is what is sampled: both are the sampler's, and cannot be set.

    @property
    def model(self) -> Callable[[Tensor], Tensor]:
        return self.sampler.model

    @property
    def deformation(self) -> Deformation:
        return self.sampler.deformation

    @property
    def noise(self) -> NoiseLaw:
        return self.sampler.noise

    @property
    def num_classes(self) -> int:
        return self.sampler.num_classes

    @property
    def padding(self) -> Padding:
        return self.sampler.padding

    @property
    def batch_size(self) -> int:
        return self.sampler.batch_size

    def certify(
        self,
        image: Tensor,
        n: int = 100_000,
        n0: int = 100,
        alpha: float = 1e-3,
        seed: int = 0,
        *,
        index: int = 0,
        method: str | None = None,
        stopping: Stopping | None = None,
        watch: Watch | None = None,
    ) -> Certificate:
        """Certify the prediction for one image.

        image: [c, h, w], floating point in [0, 1]. `n0` samples choose the class, `n` fresh ones
        bound its probability; with `stopping`, as few of them as settle what it asks. `index` is
        the image's number in its data set, so that different images get different noise.
        `method` is a name from `deformrs.statistics`, to be chosen before the counts are seen;
        None is Clopper-Pearson, and the any-time bound with `stopping`. `watch` is told how far it
        is, a batch at a time.

        Guarantee: the certificate is false with probability at most alpha.
        """
        return self.certify_all(
            [image],
            n,
            n0,
            alpha,
            seed,
            indices=[index],
            method=method,
            stopping=stopping,
            watch=watch,
        )[0]

    def certify_all(
        self,
        images: Sequence[Tensor],
        n: int = 100_000,
        n0: int = 100,
        alpha: float = 1e-3,
        seed: int = 0,
        *,
        indices: Sequence[int],
        method: str | None = None,
        stopping: Stopping | None = None,
        watch: Watch | None = None,
        settled: Watch | None = None,
    ) -> list[Certificate]:
        """The same for several images of one size, whose samples share batches.

        A GPU is then busy where each image has few samples. `settled` is told how many more
        images have all the samples they need.
        """
        check_alpha(alpha)
        check_integer("n0", n0, least=1)
        check_integer("n", n, least=1)
        method = method_for(method, stopping, n)
        batch, space = self._ready(images, seed, indices)
        rule = None if stopping is None else self._rule(stopping, space, float(alpha), n, method)
        found = counts_of(
            self.sampler,
            batch,
            indices,
            n,
            n0,
            seed=seed,
            rule=rule,
            watch=watch,
            settled=settled,
        )
        return [self.noise.certify(counts, space, float(alpha), method) for counts in found]

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

        With `shift`, the prediction for the image under that deformation.

        Guarantee: the answer differs from the true most probable class with probability at most
        alpha (a two-sided binomial test between the two classes seen most often).
        """
        check_alpha(alpha)
        counts = self.count(image, n, Stage.PREDICT, seed=seed, index=index, shift=shift)
        second, first = sorted(range(self.num_classes), key=lambda c: (counts[c], -c))[-2:]
        return first if sign_test(counts[first], counts[second]) <= alpha else None

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
        """How often the model answers each class over n deformations: K numbers."""
        return self.count_all(
            [image], n, stage, seed=seed, indices=[index], shift=shift, watch=watch
        )[0]

    def count_all(
        self,
        images: Sequence[Tensor],
        n: int,
        stage: Stage,
        *,
        seed: int = 0,
        indices: Sequence[int],
        shift: Sequence[float] | None = None,
        watch: Watch | None = None,
    ) -> list[tuple[int, ...]]:
        """The same for each of several images of one size, whose samples share batches."""
        check_integer("n0" if stage == Stage.SELECT else "n", n, least=1)
        batch, space = self._ready(images, seed, indices)
        centre = None
        if shift is not None:
            row = space.reduced(space.as_shift(shift))
            centre = torch.tensor(row, dtype=torch.float32, device=batch.device)
        counts = self.sampler.count(
            batch,
            [Span(index, stage, 0, n, p, p) for p, index in enumerate(indices)],
            len(images),
            seed=seed,
            shift=centre,
            watch=watch,
        )
        return [tuple(row) for row in counts.tolist()]

    def warm_up(self, image: Tensor, *, together: int = 1) -> None:
        """Compile for images like that one, if it was asked for, rather than at the first use.

        `together` is how many share batches. `sampler.compiled` then says how it really runs.
        """
        self.sampler.warm_up(self._stacked([image] * min(together, 2)))

    def answer(self, image: Tensor) -> int:
        """What the model itself answers to the image as it is. No guarantee comes with it."""
        return self.answer_all([image])[0]

    def answer_all(self, images: Sequence[Tensor]) -> list[int]:
        """The same for each of several images of one size."""
        check_evaluating(self.model)
        return self.sampler.plain(self._stacked(images))

    def _ready(
        self, images: Sequence[Tensor], seed: int, indices: Sequence[int]
    ) -> tuple[Tensor, Space]:
        """All that is looked at before anything is sampled: images, and their parameters."""
        if not images or len(images) != len(indices):
            raise InputError(
                "the number of indices",
                f"{len(indices)} for {len(images)} images",
                "must be one for each, of at least one image",
                "e.g. indices=range(len(images))",
            )
        check_seed("seed", seed)
        for index in indices:
            check_seed("index", index)
        check_evaluating(self.model)
        batch = self._stacked(images)
        space = self.deformation.space(size_of(batch))
        self.noise.check(space)
        return batch, space

    def _stacked(self, images: Sequence[Tensor]) -> Tensor:
        """Images of one size, where they are sampled: [k, c, h, w]."""
        for image in images:
            check_images("image", image, rank=3)
            if image.shape != images[0].shape or image.dtype != images[0].dtype:
                raise InputError(
                    "the images",
                    f"of shapes {tuple(images[0].shape)} and {tuple(image.shape)}",
                    "must agree in shape and type to share batches",
                    "certify them one by one",
                )
        return torch.stack([image.detach() for image in images]).to(self.device_for(images[0]))

    def device_for(self, image: Tensor) -> torch.device:
        """Where that image is sampled: the device asked for, the network's, or its own."""
        if self.device is None and isinstance(self.model, nn.Module):
            for parameter in self.model.parameters():
                return parameter.device
        return self.device or image.device

    def _rule(self, stopping: Stopping, space: Space, alpha: float, n: int, method: str) -> Rule:
        """Made once for all images of a size: it may take a while for regions."""
        key = (stopping, space, alpha, n, method)
        if key not in self._rules:
            last_look = method != "anytime"
            self._rules[key] = stopping.rule(self.noise, space, alpha, n, last_look=last_look)
        return self._rules[key]
