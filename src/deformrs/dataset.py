"""Certify labelled images one after another, on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs import __version__
from deformrs.certificate import Certificate
from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.config import Config
from deformrs.errors import InputError, ModelError
from deformrs.geometry import check_images, size_of
from deformrs.protocol import method_for
from deformrs.randomness import Stage
from deformrs.runs import Result, Run
from deformrs.runs.records import image_digest
from deformrs.sampling import Watch
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import is_anytime
from deformrs.stopping import GIVEN_UP, Stopping
from deformrs.units import Size


class Labelled(Protocol):
    """Images [c, h, w] in [0, 1] with their labels: a list, or a `ImageSet`.

    A set with a method `source(index)` gives them names in messages and records.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor | NDArray[np.float32], int]: ...


def chosen(total: int, skip: int = 1, max: int | None = None) -> range:
    """The indices of every `skip`-th of the first `max` images."""
    check_integer("skip", skip, least=1)
    if max is not None:
        check_integer("max", max, least=1)
    if total < 1:
        raise InputError("the data", "empty", "must have at least one image", "add some")
    return range(0, total if max is None else min(total, max), skip)


def check_dataset(
    images: Labelled,
    indices: Iterable[int],
    num_classes: int,
    *,
    size: Size | None = None,
    watch: Callable[[int], None] | None = None,
) -> None:
    """Look at all images and labels before any time is spent on sampling.

    With `size`, all images must have it. Raises one error that names every image at fault,
    five at most by name.
    """
    faults: list[InputError] = []
    channels: int | None = None
    for count, index in enumerate(indices, start=1):
        try:
            image, _ = image_of(images, index, num_classes)
            channels = len(image) if channels is None else channels
            if len(image) != channels:
                raise InputError(
                    source_of(images, index) or f"image {index}",
                    f"of {len(image)} channel(s)",
                    f"must have {channels} like the first",
                    "choose 3 channels (colour) or 1 (grey) for all, on the command line by "
                    "--channels",
                )
            if size is not None and size_of(image) != size:
                raise InputError(
                    source_of(images, index) or f"image {index}",
                    f"of size {size_of(image)}",
                    f"must be of {size} like the first: noise in pixels is one law for all, and "
                    "compiled code for one size",
                    "resize and crop the images; or give the noise in half image sides, and "
                    "do not compile",
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
                "must be readable images with labels of the model's classes",
                "mend or remove them",
            )
        )
        raise InputError(
            f"the data, in {len(faults)} places,",
            f"faulty ({shown}{more})",
            rule,
            f"{remedy}; nothing was sampled yet",
        )


def source_of(images: Labelled, index: int) -> str:
    """Where an image comes from, if its set can tell."""
    source = getattr(images, "source", None)
    return str(source(index)) if callable(source) else ""


def image_of(images: Labelled, index: int, num_classes: int) -> tuple[Tensor, int]:
    """One image and its label, checked, on the CPU or where it lies."""
    pixels, label = images[index]
    named = source_of(images, index) or f"image {index}"
    image = pixels if isinstance(pixels, Tensor) else torch.from_numpy(pixels)
    check_images(named, image, rank=3)
    if not isinstance(label, int | np.integer | Tensor) or not 0 <= int(label) < num_classes:
        raise InputError(
            f"the label of {named}",
            repr(label),
            f"must lie in [0, {num_classes - 1}], the model's classes",
            "use the labels that the model was trained with",
        )
    return image, int(label)


def identity_of(classifier: SmoothedClassifier, image: Tensor) -> Config:
    """All that counts depend on, but for the image, its index, the seed and the samples.

    `image` is any of the images: a function runs where they lie.
    """
    identity: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(classifier.device_for(image)),
        "model": network_identity(classifier.model),
        "num_classes": classifier.num_classes,
        "deformation": classifier.deformation.to_config(),
        "padding": classifier.padding,
        "batch_size": classifier.batch_size,
    }
    compiled = classifier.sampler.compiled
    return identity | ({"compiled": compiled} if compiled != "no" else {})


def device_name(device: torch.device) -> str:
    """The kind of machine: results repeat on one kind only."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def digest_of(tensor: Tensor) -> str:
    """The digest of an image, or of a weight."""
    array = tensor.detach().cpu().contiguous()
    content = array.reshape(-1).view(torch.uint8).numpy().tobytes()
    return image_digest(tuple(array.shape), str(array.dtype).removeprefix("torch."), content)


def network_identity(model: object) -> Config:
    """A network by its weights. A function has only its name: the caller must keep it the same."""
    if not isinstance(model, nn.Module):
        return {"function": getattr(model, "__qualname__", type(model).__qualname__)}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor):  # extra state may be anything
            digest.update(f"{name} {digest_of(tensor)}".encode())
    return {"network": type(model).__qualname__, "parameters": digest.hexdigest()[:16]}


_BATCHES = 128
"""That a group fills on a GPU: the last one, which is not full, then costs little."""
_MOST = 512
_BYTES = 2**29
"""That the images of a group may take."""
_DECIDED = {"cpu": 32, "cuda": 2048}
"""Between two looks an image gets few samples: so many are needed to fill batches. A process that
is killed loses what it has of one group."""


def together_for(
    classifier: SmoothedClassifier, image: Tensor, n: int, stopping: Stopping | None = None
) -> int:
    """How many images to put together. A fixed number of samples keeps a CPU busy by itself."""
    device = classifier.device_for(image).type
    if stopping is not None:
        most = _DECIDED.get(device, 1)
    elif device == "cuda":
        most = min(_MOST, -(-_BATCHES * classifier.batch_size // n))
    else:
        most = 1
    return max(1, min(most, _BYTES // (image.numel() * image.element_size())))


def groups_of(indices: Sequence[int], together: int) -> Iterator[tuple[int, ...]]:
    """The indices in order, so many at a time."""
    for start in range(0, len(indices), together):
        yield tuple(indices[start : start + together])


@dataclass(frozen=True, eq=False)
class Asked:
    """What is asked of every image, and who is told how it goes."""

    n: int
    n0: int
    alpha: float
    seed: int
    method: str
    stopping: Stopping | None
    watch: Watch | None
    settled: Watch | None


@dataclass(frozen=True, eq=False)
class Group:
    """Images that are certified together, with their labels and where they come from.

    Where an image lies in which batch depends on its place among the chosen ones alone: a group
    that is not full is filled up with its last image (but not where sampling stops early, and
    batches depend on all images anyway). Images of different sizes go one by one.
    """

    indices: tuple[int, ...]
    images: tuple[Tensor, ...]
    labels: tuple[int, ...]
    sources: tuple[str, ...]
    together: int

    def certified(self, asked: Asked, classifier: SmoothedClassifier) -> list[Result]:
        """Their results, in order."""
        results: list[tuple[Certificate, int]] = []
        for images, indices in self._parts(asked, classifier):
            certificates = classifier.certify_all(
                images,
                asked.n,
                asked.n0,
                asked.alpha,
                asked.seed,
                indices=indices,
                method=asked.method,
                stopping=asked.stopping,
                watch=asked.watch,
                settled=asked.settled,
            )
            results += zip(certificates, classifier.answer_all(images), strict=True)
        return [
            Result(index, label, certificate, plain, source, digest_of(image))
            for index, image, label, source, (certificate, plain) in zip(
                self.indices, self.images, self.labels, self.sources, results, strict=False
            )
        ]

    def check_same(
        self, classifier: SmoothedClassifier, done: Mapping[int, Result], asked: Asked
    ) -> None:
        """Raise unless the model still gives the counts that stored results began with.

        Weights are compared by their digest; what a function does besides, or a file that it
        imports, can only be tried.
        """
        self.check_unchanged(done)
        counts: list[tuple[int, ...]] = []
        answers: list[int] = []
        for images, indices in self._parts(asked, classifier):
            counts += classifier.count_all(
                images, asked.n0, Stage.SELECT, seed=asked.seed, indices=indices
            )
            answers += classifier.answer_all(images)
        for index, found, answer in zip(self.indices, counts, answers, strict=False):
            result = done.get(index)
            if result is None:
                continue
            if found != result.certificate.counts.selection or answer != result.plain:
                raise ModelError(
                    f"the answer to image {index} ({result.source})",
                    "another than when the run was begun",
                    "must be the same: results of two functions must not be mixed",
                    "restore the model and the deformation, or begin another run",
                )

    def check_unchanged(self, done: Mapping[int, Result]) -> None:
        """Raise if an image or label is not the one that its stored result speaks of."""
        for index, image, label in zip(self.indices, self.images, self.labels, strict=True):
            result = done.get(index)
            if result and (result.pixels != digest_of(image) or result.label != label):
                raise InputError(
                    f"image {index} ({result.source})",
                    f"not the one certified, of size {size_of(image)} and label {label}",
                    "must stay as it was while a run goes on",
                    "restore it, or begin another run",
                )

    def _parts(
        self, asked: Asked, classifier: SmoothedClassifier
    ) -> Iterator[tuple[list[Tensor], list[int]]]:
        """What is sampled at once."""
        if len({(image.shape, image.dtype) for image in self.images}) > 1:
            for image, index in zip(self.images, self.indices, strict=True):
                yield [image], [index]
            return
        wanted = self.together
        if asked.stopping is not None:
            # One that is left over has a partner: alone it would need another program compiled.
            wanted = min(wanted, 1 if classifier.sampler.compiled == "no" else 2)
        lacking = max(0, wanted - len(self.images))
        yield (
            [*self.images, *(self.images[-1:] * lacking)],
            [*self.indices, *(self.indices[-1:] * lacking)],
        )


def certify_dataset(
    classifier: SmoothedClassifier,
    images: Labelled,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int = 0,
    method: str | None = None,
    stopping: Stopping | None = None,
    skip: int = 1,
    max: int | None = None,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    looked: Callable[[int], None] | None = None,
    watch: Watch | None = None,
    settled: Watch | None = None,
) -> Iterator[Result]:
    """Certify every `skip`-th of the first `max` images; results come one by one, in order.

    All images and labels are looked at before the first is sampled (`looked` is told how many
    were); with `same_size` they must agree in size. `together` is how many images share their
    batches; None: as many as keep a GPU busy, and one on a CPU. `watch` is told of every batch.

    With `stopping` an image gets no more samples than settle what it asks, at most n; `settled`
    is told how many more images are. `method` is then the any-time bound.

    With `out`, each result is on the disk before it is handed over, and a run that was stopped is
    taken up: what is done comes from the folder. `about` says what else reproduces the run; model,
    noise and sampling are written down in any case.

    Guarantee: each certificate is false with probability at most alpha, and depends on the model,
    the image, its index and the seed: not on the other images or on where a run was stopped.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_half(images):
    ...     left, right = images[..., :4], images[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5), num_classes=2)
    >>> [result.correct for result in certify_dataset(g, [(image, 1), (image, 0)], n=100)]
    [True, False]
    """
    check_integer("n", n, least=1)
    check_integer("n0", n0, least=1)
    check_alpha(alpha)
    check_seed("seed", seed)
    method = method_for(method, stopping, n)
    if is_anytime(method):
        check_alpha(alpha, below=0.5)
    indices = chosen(len(images), skip, max)
    first, _ = image_of(images, indices[0], classifier.num_classes)
    if stopping is not None:
        stopping.check(classifier.deformation.space(size_of(first)))
    if together is None:
        together = together_for(classifier, first, n, stopping)
    check_integer("together", together, least=1)
    classifier.warm_up(first, together=together)  # compiled or not: only then is it known
    config: Config = identity_of(classifier, first)
    config |= {"n": n, "n0": n0, "seed": seed, "skip": skip}
    config |= {"together": together} if together > 1 else {}
    if stopping is not None:
        # How patient the rule is changes which samples are drawn, not what is asked.
        config |= {"stopping": stopping.to_config() | {"given_up": GIVEN_UP}}
    config = _merged(config, about or {})
    asked = Asked(n, n0, alpha, seed, method, stopping, watch, settled)

    def certified() -> Iterator[Result]:
        opened = (
            nullcontext()
            if out is None
            else Run.open(Path(out), classifier.noise, float(alpha), method, config)
        )
        with opened as run:
            done = {result.index: result for result in run.results} if run else {}
            missing = [index for index in indices if index not in done]
            same = same_size or classifier.sampler.compiled != "no"
            size = size_of(first) if same else None
            check_dataset(images, missing, classifier.num_classes, size=size, watch=looked)
            groups = list(groups_of(indices, together))
            if missing and done:
                known = next(group for group in groups if done.keys() & set(group))
                _read(images, known, together, classifier).check_same(classifier, done, asked)
            for places in groups:
                group = _read(images, places, together, classifier)
                group.check_unchanged(done)
                began = time.perf_counter()
                if not done.keys() >= set(places):
                    # All of it, also what is there: batches are then filled as they were.
                    results = group.certified(asked, classifier)
                    made = [result for result in results if result.index not in done]
                    if run:
                        seconds = (time.perf_counter() - began) / len(places)
                        run.add_all(made, seconds=seconds)
                    done |= {result.index: result for result in made}
                yield from (done.pop(index) for index in places)

    return certified()


def _read(
    images: Labelled, places: tuple[int, ...], together: int, classifier: SmoothedClassifier
) -> Group:
    read = [image_of(images, index, classifier.num_classes) for index in places]
    return Group(
        places,
        tuple(image for image, _ in read),
        tuple(label for _, label in read),
        tuple(source_of(images, index) for index in places),
        together,
    )


def _merged(config: Config, about: Config) -> Config:
    """Both; what is known of the model from either side is kept."""
    ours, theirs = config.get("model"), about.get("model")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        about = about | {"model": theirs | ours}
    return config | about
