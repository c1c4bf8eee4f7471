"""The smoothed classifier: select, estimate, bound, certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property, partial
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs.bars import CertificationBar, Progress, ProgressChoice
from deformrs.certificate import Certificate, Counts, PairedCounts
from deformrs.checks import check_choice, check_integer, check_sampled_alpha, check_seed
from deformrs.deformations import Deformation
from deformrs.determinism import Replay, check_evaluating, check_fixed
from deformrs.errors import InputError, NoMemoryError
from deformrs.execution import (
    Compiled,
    ReadyModel,
    scores_of,
    usable_device,
)
from deformrs.geometry import Padding, size_of
from deformrs.inputs import ImageLike, as_image
from deformrs.noise import NoiseLaw
from deformrs.plan import SamplingPlan, seed_or_fresh
from deformrs.randomness import Span, Stage
from deformrs.rule import Rule
from deformrs.runs.tally import Tally
from deformrs.sampling import Sampler
from deformrs.space import Shift, Space
from deformrs.statistics import sign_test
from deformrs.stopping import Stopping
from deformrs.units import Size


@dataclass(frozen=True, eq=False, repr=False)
class SmoothedClassifier:
    """g(x) = the class that `model` predicts most often when x is deformed at random.

    `model` maps images in [0, 1], [n, c, h, w], to logits, [n, num_classes], or is what
    `load_model` returns; normalization is part of it. `deformation` says how images move, `noise`
    how its parameters are drawn, `padding` what lies outside the image. `num_classes` is read from
    the model's first output if it is None. `batch_size`, `compiled` and `device` change speed and
    memory, not which noise is drawn.

    Before it is sampled, the model is tried on a few images of each shape: one whose logits depend
    on other images, on earlier calls or on chance is refused, since no certificate would hold.
    `check_model=False` leaves that out, and is your promise.

    Images are floats in [0, 1], [c, h, w] or [h, w], as tensors or NumPy arrays; or bytes, also
    [h, w, c]; or PIL images. They are not resized.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_side(images):
    ...     left, right = images[..., :4], images[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_side, Rotation(), Uniform(0.5))
    >>> g.certify(image, n=1000).prediction
    1
    >>> g
    SmoothedClassifier(brighter_side, Rotation(), Uniform(scale=0.5), num_classes=2)
    """

    # Frozen: the noise that is certified is the noise that is sampled.
    model: Callable[[Tensor], Tensor]
    deformation: Deformation
    noise: NoiseLaw
    num_classes: int | None = None
    _: KW_ONLY
    padding: Padding = "zeros"
    batch_size: int = 256
    compiled: Compiled = "no"
    device: torch.device | str | None = None
    check_model: bool = True

    def __post_init__(self) -> None:
        if not callable(self.model) or isinstance(self.model, type):
            raise InputError(
                "model",
                repr(self.model),
                "must map images to logits",
                "pass a module or a function",
            )
        if isinstance(self.model, ReadyModel):
            object.__setattr__(self, "model", self.model.module)
        if not isinstance(self.deformation, Deformation):
            raise InputError(
                "deformation", self.deformation, "must be a Deformation", "e.g. Rotation()"
            )
        if not isinstance(self.noise, NoiseLaw):
            raise InputError("noise", self.noise, "must be a noise law", "e.g. Uniform(0.5)")
        self.deformation.check_registered()
        self.noise.check_registered()
        if self.num_classes is not None:
            check_integer("num_classes", self.num_classes, least=2)
        check_integer("batch_size", self.batch_size, least=1)
        check_choice("padding", self.padding, get_args(Padding))
        check_choice("compiled", self.compiled, get_args(Compiled))
        if self.device is not None:
            object.__setattr__(self, "device", usable_device(self.device))

    def __repr__(self) -> str:
        name = getattr(self.model, "__qualname__", type(self.model).__qualname__)
        if isinstance(self.model, nn.Module):
            name = str(self.model._get_name())  # type: ignore[no-untyped-call]
        default = {field.name: field.default for field in fields(self)}
        options = "".join(
            f", {key}={getattr(self, key)!r}"
            for key in ("num_classes", "padding", "compiled")
            if getattr(self, key) != default[key]
        )
        return f"SmoothedClassifier({name}, {self.deformation!r}, {self.noise!r}{options})"

    def certify(
        self,
        image: ImageLike,
        n: int = 100_000,
        n0: int = 100,
        alpha: float = 1e-3,
        seed: int | None = None,
        *,
        index: int = 0,
        method: str = "auto",
        stopping: Stopping | None = None,
        progress: ProgressChoice = None,
    ) -> Certificate:
        """Certify the prediction for one image.

        `n0` samples select the class, `n` fresh ones bound its probability; with `stopping`, as few
        of them as decide its queries. The noise follows from `seed`, by default a random one, which
        the certificate carries; give one only to repeat a result. `index` is the image's number in
        its dataset, so that images get different noise. `method` names a bound of
        `deformrs.statistics`; the default is chosen for each image by its selection sample.
        `progress` None shows a bar in a terminal or a notebook if it takes more than a second,
        False does not; a `Progress` has callbacks.

        Guarantee: the certificate is false with probability at most alpha.
        """
        plan = SamplingPlan(n, n0, alpha, seed_or_fresh(seed), method, stopping)
        certificate = self.certify_batch([image], [index], plan, progress)[0]
        return replace(certificate, preview=_preview(as_image("image", image)))

    def certify_batch(
        self,
        images: Sequence[ImageLike] | Tensor | NDArray[np.generic],
        indices: Sequence[int] | None = None,
        plan: SamplingPlan | None = None,
        progress: ProgressChoice = None,
    ) -> list[Certificate]:
        """Certify several images of one size, whose samples share batches.

        `images` is a sequence of images or one array, [n, c, h, w]; `indices` are their numbers in
        their dataset, by default 0, 1, and so on. The default plan is that of `certify`.

        >>> import torch
        >>> from deformrs import Rotation, SamplingPlan, SmoothedClassifier, Uniform
        >>> bright = lambda x: torch.stack([x.mean((1, 2, 3)), 0.5 - x.mean((1, 2, 3))], 1)
        >>> g = SmoothedClassifier(bright, Rotation(), Uniform(0.5))
        >>> images = torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
        >>> [c.prediction for c in g.certify_batch(images, plan=SamplingPlan(n=100))]
        [1, 0]

        Guarantee: each certificate is false with probability at most `plan.alpha`.
        """
        plan = SamplingPlan() if plan is None else plan
        counts = self.sample_batch(images, indices, plan, progress)
        size = size_of(as_image("image", images[0]))
        return [self.certificate(each, size, plan) for each in counts]

    def sample_batch(
        self,
        images: Sequence[ImageLike] | Tensor | NDArray[np.generic],
        indices: Sequence[int] | None,
        plan: SamplingPlan,
        progress: ProgressChoice = None,
        tally: Tally | None = None,
        replay: Replay | None = None,
    ) -> list[Counts]:
        """Return the class counts of both stages for several images, as `certify_batch` takes them.

        `certificate` turns the counts of each into its certificate, here or on another machine.
        `tally` stores counts meanwhile, so that an interrupted call is resumed; `replay` keeps
        batches to be shown to the model again.
        """
        if not isinstance(plan, SamplingPlan):
            raise InputError(
                "plan", repr(plan), "must be a SamplingPlan", "e.g. SamplingPlan(n=1000, seed=0)"
            )
        indices = range(len(images)) if indices is None else indices
        batch, space = self._validated(images, indices, plan.seed)
        rule = self._rule(plan, space)
        self.check_fixed(batch[0], (plan.n0 + plan.n) * len(batch))
        # Select: n0 samples choose each image's candidate class.
        # Estimate: n fresh samples, or as few as decide every query, count its hits.
        k = len(batch)
        select = _spans(indices, Stage.SELECT, plan.n0)
        samples = plan.n0 + plan.n if rule is None else None
        with CertificationBar(progress, k, samples) as bar:
            count = partial(
                self.sampler.count, batch, seed=plan.seed, progress=bar.progress, replay=replay
            )
            if rule is None:
                estimate = _spans(indices, Stage.ESTIMATE, plan.n, first_row=k)
                counts = count([*select, *estimate], 2 * k, tally=tally)  # they share batches
                selection, estimation = counts[:k], counts[k:]
            else:
                selection = count(select)
                estimation = self.sampler.count_until(
                    batch,
                    indices,
                    selection,
                    rule,
                    seed=plan.seed,
                    progress=bar.progress,
                    tally=tally,
                    replay=replay,
                )
        return [*map(_counts, _rows(selection), _rows(estimation))]

    def certificate(self, counts: Counts, size: Size, plan: SamplingPlan) -> Certificate:
        """Bound the candidate's probability, and certify the shifts that this allows.

        `counts` are those that `sample_batch` returned for an image of that size with that plan.
        """
        space = self.deformation.space(size)
        method = plan.method_for(self.noise, space).name
        certificate = self.noise.certify(counts, space, plan.alpha, method)
        return replace(certificate, seed=plan.seed)

    def predict(
        self,
        image: ImageLike,
        n: int = 1000,
        alpha: float = 1e-3,
        seed: int | None = None,
        *,
        index: int = 0,
        shift: Shift | None = None,
    ) -> int | None:
        """Return the smoothed prediction for an image, or None to abstain.

        With `shift`, the prediction for the image under that deformation: one number or quantity
        ("10deg") for each parameter. By default the seed is random, as that of `certify`.

        Guarantee: the prediction differs from the true most probable class with probability at most
        alpha (a two-sided binomial test between the two classes seen most often).
        """
        check_sampled_alpha(alpha)
        counts = self.count(image, n, Stage.PREDICT, seed=seed, index=index, shift=shift)
        second, first = sorted(range(len(counts)), key=lambda c: (counts[c], -c))[-2:]
        return first if sign_test(counts[first], counts[second]) <= alpha else None

    def count(
        self,
        image: ImageLike,
        n: int,
        stage: Stage,
        *,
        seed: int | None = None,
        index: int = 0,
        shift: Shift | None = None,
        progress: Progress | None = None,
    ) -> tuple[int, ...]:
        """Return how often each class is predicted over n random deformations of an image."""
        return self.count_batch(
            [image], [index], n, stage, seed=seed, shift=shift, progress=progress
        )[0]

    def count_batch(
        self,
        images: Sequence[ImageLike],
        indices: Sequence[int],
        n: int,
        stage: Stage,
        *,
        seed: int | None = None,
        shift: Shift | None = None,
        progress: Progress | None = None,
    ) -> list[tuple[int, ...]]:
        """Return the class counts of several images of one size, whose samples share batches."""
        check_integer("n0" if stage == Stage.SELECT else "n", n, least=1)
        seed = seed_or_fresh(seed)
        batch, space = self._validated(images, indices, seed)
        self.check_fixed(batch[0], n * len(batch))
        centre = None
        if shift is not None:
            row = space.reduced(space.as_shift(shift))
            centre = torch.tensor(row, dtype=torch.float32, device=batch.device)
        spans = _spans(indices, stage, n)
        return _rows(self.sampler.count(batch, spans, seed=seed, shift=centre, progress=progress))

    def classify(
        self, images: Sequence[ImageLike], indices: Sequence[int] | None = None
    ) -> list[int]:
        """Return the model's own predictions for images of one size. They carry no guarantee."""
        check_evaluating(self.model)
        return self.sampler.classify(self._stacked(images), indices)

    def warm_up(self, image: ImageLike, *, together: int = 1) -> None:
        """Compile for images of this shape now, if requested, rather than at the first use.

        `together` is the number of images that share batches. `sampler.compiled` then says how the
        model really runs.
        """
        self.sampler.warm_up(self._stacked([image] * min(together, 2)))

    def check_plan(self, plan: SamplingPlan, image: Tensor) -> None:
        """Raise if the noise makes no sense for an image, or cannot certify what the plan requests
        even if all samples agree.

        A plan that suits an image of one size is accepted for the other sizes from then on.
        """
        space = self.deformation.space(size_of(image))
        self.noise.check_for_sampling(space)
        self.classes_for(image)
        self._rule(plan, space)

    def device_for(self, image: Tensor) -> torch.device:
        """Return where an image is sampled: the requested device, the network's, or its own."""
        if self.device is not None:
            return torch.device(self.device)
        if isinstance(self.model, nn.Module):
            for parameter in self.model.parameters():
                return parameter.device
        return image.device

    def classes_for(self, image: Tensor) -> int:
        """Return the number of classes, read from the model's output for this image if not given.

        image: [c, h, w]
        """
        if self.num_classes is None:
            check_evaluating(self.model)
            with torch.inference_mode():
                # A copy: what a model does to its input must not reach the caller's image.
                scores = scores_of(self.model, image[None].to(self.device_for(image), copy=True))
            object.__setattr__(self, "num_classes", scores.shape[1])
        return self.num_classes  # type: ignore[return-value]

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler of this classifier."""
        if self.num_classes is None:
            raise InputError(
                "num_classes", None, "must be known here", "give it, or certify an image first"
            )
        return Sampler(
            self.model,
            self.deformation,
            self.noise,
            self.num_classes,
            padding=self.padding,
            batch_size=self.batch_size,
            compiled=self.compiled,
        )

    def _validated(
        self,
        images: Sequence[ImageLike] | Tensor | NDArray[np.generic],
        indices: Sequence[int],
        seed: int,
    ) -> tuple[Tensor, Space]:
        """Check everything that sampling needs; return the batch and its parameter space."""
        if not len(images) or len(images) != len(indices):
            raise InputError(
                "the number of indices",
                f"{len(indices)} for {len(images)} images",
                "must be one for each, of at least one image",
                "e.g. indices=range(len(images))",
            )
        check_seed("seed", seed)
        for index in indices:
            check_seed("index", index)
        batch = self._stacked(images)
        space = self.deformation.space(size_of(batch))
        self.noise.check_for_sampling(space)
        return batch, space

    @cached_property
    def _checked(self) -> set[tuple[object, ...]]:
        return set()

    def check_fixed(self, image: Tensor, samples: int) -> None:
        """Raise unless the model is a fixed function, tried once for each shape and batch size.

        image: [c, h, w]; samples: how many of them batches are filled with.
        """
        check_evaluating(self.model)  # it may be switched at any time
        size, image = min(self.batch_size, samples), image.to(self.device_for(image))
        key = (image.shape, image.dtype, image.device, size)
        if not self.check_model or key in self._checked:
            return
        while True:
            try:
                check_fixed(self.model, torch.stack([image, image.flip(-1)]), size)
                break
            except NoMemoryError:
                if size == 1:
                    raise
                size //= 2  # as sampling does, which says so
        self._checked.add(key)

    def _stacked(self, images: Sequence[ImageLike] | Tensor | NDArray[np.generic]) -> Tensor:
        """Return images of one size as a batch on their device: [k, c, h, w]."""
        if isinstance(images, Tensor | np.ndarray) and images.ndim != 4:
            raise InputError(
                "images",
                f"of shape {tuple(images.shape)}",
                "must be N x C x H x W if they are one array",
                "image[None] for a single one, images[:, None] for grey ones",
            )
        tensors = [as_image("image", image) for image in images]
        for image in tensors:
            if image.shape != tensors[0].shape or image.dtype != tensors[0].dtype:
                raise InputError(
                    "the images",
                    f"of shapes {tuple(tensors[0].shape)} and {tuple(image.shape)}",
                    "must agree in shape and type to share batches",
                    "certify them one by one",
                )
        self.classes_for(tensors[0])
        return torch.stack([image.detach() for image in tensors]).to(self.device_for(tensors[0]))

    @cached_property
    def _rules(self) -> dict[tuple[SamplingPlan, Space], Rule | None]:
        return {}

    def _rule(self, plan: SamplingPlan, space: Space) -> Rule | None:
        """Return the stopping rule. Cached: enclosing a region is expensive."""
        key = (replace(plan, seed=0), space)
        if key not in self._rules:
            assert self.num_classes is not None  # read from the model by now
            # Pixels reach further on small images: a run goes on if it suits one size.
            if not any(key[0] == accepted for accepted, _ in self._rules):
                plan.check_attainable(self.noise, space, self.num_classes)
            self._rules[key] = plan.rule(self.noise, space)
        return self._rules[key]


def _spans(indices: Sequence[int], stage: Stage, n: int, first_row: int = 0) -> list[Span]:
    """Return samples 0 to n - 1 of a stage for each image of a batch, counted in its row."""
    return [Span(index, stage, 0, n, image=i, row=first_row + i) for i, index in enumerate(indices)]


def _preview(image: Tensor) -> NDArray[np.uint8]:
    """Return a small copy of an image: [c, h, w] -> [h, w, 1 or 3]."""
    step = -(-max(image.shape[1:]) // 128)
    channels = 3 if len(image) == 3 else 1
    small = image.detach()[:channels, ::step, ::step].float()
    pixels: NDArray[np.uint8] = (255 * small).round().byte().permute(1, 2, 0).cpu().numpy()
    return pixels


def _counts(selection: tuple[int, ...], estimation: tuple[int, ...]) -> Counts:
    """Return the counts of an image, of which `estimation` has the columns of the sampler."""
    k = len(selection)
    independent, classes, differing = estimation[:k], estimation[k : 2 * k], estimation[2 * k :]
    return Counts(
        selection, independent, PairedCounts(classes, differing) if any(classes) else None
    )


def _rows(counts: NDArray[np.int64]) -> list[tuple[int, ...]]:
    return [tuple(row) for row in counts.tolist()]
