"""Certify labelled pictures one after another, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.config import Config
from deformrs.engines.identity import digest_of, identity_of
from deformrs.errors import InputError, ModelError
from deformrs.geometry import check_pictures, size_of
from deformrs.preparation import Pixels
from deformrs.randomness import Stage
from deformrs.runs import Result, Run
from deformrs.smoothing import SmoothedClassifier, Watch
from deformrs.statistics import check_method
from deformrs.units import Size


class Labelled(Protocol):
    """Pictures [c, h, w] in [0, 1] with their labels: a list, or a `PictureSet`.

    A set with a method `source(index)` gives them names in messages and records.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor | Pixels, int]: ...


def certify_dataset(
    classifier: SmoothedClassifier,
    pictures: Labelled,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int = 0,
    method: str = "clopper_pearson",
    skip: int = 1,
    max: int | None = None,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    looked: Callable[[int], None] | None = None,
    watch: Watch | None = None,
) -> Iterator[Result]:
    """Certify every `skip`-th of the first `max` pictures; results come one by one, in order.

    All pictures and labels are looked at before the first is sampled (`looked` is told how many
    were); with `same_size` they must agree in size. `watch` is told of every batch.

    With `out`, each result is on the disk before it is handed over, and a run that was stopped is
    taken up: what is done comes from the folder. `about` says what else reproduces the run; model,
    noise and sampling are written down in any case.

    Guarantee: each certificate is false with probability at most alpha, and depends on the model,
    the picture, its index and the seed: not on the other pictures or on where a run was stopped.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_half(pictures):
    ...     left, right = pictures[..., :4], pictures[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5), num_classes=2)
    >>> [result.correct for result in certify_dataset(g, [(image, 1), (image, 0)], n=100)]
    [True, False]
    """
    check_whole("n", n, least=1)
    check_whole("n0", n0, least=1)
    check_alpha(alpha)
    check_seed("seed", seed)
    check_method(method)
    indices = chosen(len(pictures), skip, max)
    first, _ = _picture(pictures, indices[0], classifier.num_classes)
    config: Config = identity_of(classifier, first)
    config |= {"n": n, "n0": n0, "seed": seed, "skip": skip}
    config = _merged(config, about or {})

    def certify(index: int, image: Tensor, label: int) -> Result:
        certificate = classifier.certify(
            image, n, n0, alpha, seed, index=index, method=method, watch=watch
        )
        plain = classifier.answer(image)
        return Result(
            index, label, certificate, plain, source_of(pictures, index), digest_of(image)
        )

    def results() -> Iterator[Result]:
        opened = (
            nullcontext()
            if out is None
            else Run.open(Path(out), classifier.noise, float(alpha), method, config)
        )
        with opened as run:
            done = {result.index: result for result in run.results} if run else {}
            missing = [index for index in indices if index not in done]
            size = size_of(first) if same_size else None
            check_dataset(pictures, missing, classifier.num_classes, size=size, watch=looked)
            if missing and done:
                _check_same_function(classifier, pictures, next(iter(done.values())), seed)
            for index in indices:
                image, label = _picture(pictures, index, classifier.num_classes)
                if index in done:
                    _check_unchanged(done[index], image, label)
                    yield done[index]
                    continue
                began = time.perf_counter()
                result = certify(index, image, label)
                if run:
                    run.add(result, seconds=time.perf_counter() - began)
                yield result

    return results()


def chosen(total: int, skip: int = 1, max: int | None = None) -> range:
    """The indices of every `skip`-th of the first `max` pictures."""
    check_whole("skip", skip, least=1)
    if max is not None:
        check_whole("max", max, least=1)
    if total < 1:
        raise InputError("the data", "empty", "must have at least one picture", "add some")
    return range(0, total if max is None else min(total, max), skip)


def check_dataset(
    pictures: Labelled,
    indices: Iterable[int],
    num_classes: int,
    *,
    size: Size | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Look at all pictures and labels before any time is spent on sampling.

    With `size`, all pictures must have it. Raises one error that names every picture at fault,
    five at most by name.
    """
    faults: list[InputError] = []
    channels: int | None = None
    for count, index in enumerate(indices, start=1):
        try:
            image, _ = _picture(pictures, index, num_classes)
            channels = len(image) if channels is None else channels
            if len(image) != channels:
                raise InputError(
                    source_of(pictures, index) or f"picture {index}",
                    f"of {len(image)} channel(s)",
                    f"must have {channels} like the first",
                    "choose 3 channels (colour) or 1 (grey) for all, on the command line by "
                    "--channels",
                )
            if size is not None and size_of(image) != size:
                raise InputError(
                    source_of(pictures, index) or f"picture {index}",
                    f"of size {size_of(image)}",
                    f"must be of {size} like the first: noise in pixels is one law for all",
                    "resize and crop the pictures, or give the noise in half picture sides",
                )
        except InputError as error:
            faults.append(error)
        if watch is not None:
            watch(count)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        shown = "; ".join(f"{error.name} is {error.value}" for error in faults[:5])
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        rules = {(error.rule, error.remedy) for error in faults}
        rule, remedy = (
            rules.pop()
            if len(rules) == 1
            else (
                "must be readable pictures with labels of the model's classes",
                "mend or remove them",
            )
        )
        raise InputError(
            f"the data, in {len(faults)} places,",
            f"faulty ({shown}{more})",
            rule,
            f"{remedy}; nothing was sampled yet",
        )


def source_of(pictures: Labelled, index: int) -> str:
    """Where a picture comes from, if its set can tell."""
    source = getattr(pictures, "source", None)
    return str(source(index)) if callable(source) else ""


def _merged(config: Config, about: Config) -> Config:
    """Both; what is known of the model from either side is kept."""
    ours, theirs = config.get("model"), about.get("model")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        about = about | {"model": theirs | ours}
    return config | about


def _picture(pictures: Labelled, index: int, num_classes: int) -> tuple[Tensor, int]:
    pixels, label = pictures[index]
    named = source_of(pictures, index) or f"picture {index}"
    image = pixels if isinstance(pixels, Tensor) else torch.from_numpy(pixels)
    check_pictures(named, image, rank=3)
    if not isinstance(label, int | np.integer | Tensor) or not 0 <= int(label) < num_classes:
        raise InputError(
            f"the label of {named}",
            repr(label),
            f"must lie in [0, {num_classes - 1}], the model's classes",
            "use the labels that the model was trained with",
        )
    return image, int(label)


def _check_same_function(
    classifier: SmoothedClassifier, pictures: Labelled, result: Result, seed: int
) -> None:
    """Raise unless the model still gives the counts that a stored result began with.

    Weights are compared by their digest; what a function does besides, or a file that it imports,
    can only be tried.
    """
    image, label = _picture(pictures, result.index, classifier.num_classes)
    _check_unchanged(result, image, label)
    n0 = result.certificate.counts.n0
    counts = classifier.count(image, n0, Stage.SELECT, seed=seed, index=result.index)
    if counts != result.certificate.counts.selection or classifier.answer(image) != result.plain:
        raise ModelError(
            f"the answer to picture {result.index} ({result.source})",
            "another than when the run was begun",
            "must be the same: results of two functions must not be mixed",
            "restore the model and the deformation, or begin another run",
        )


def _check_unchanged(result: Result, image: Tensor, label: int) -> None:
    if result.pixels != digest_of(image) or result.label != label:
        raise InputError(
            f"picture {result.index} ({result.source})",
            f"not the one certified, of size {size_of(image)} and label {label}",
            "must stay as it was while a run goes on",
            "restore it, or begin another run",
        )
