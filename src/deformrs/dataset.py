"""Certify every image of a dataset, into a run folder that can be resumed."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor, nn

from deformrs import __version__
from deformrs.bars import CertificationBar, Progress, ProgressChoice
from deformrs.certificate import Counts
from deformrs.checks import check_integer
from deformrs.config import Config
from deformrs.determinism import Replay
from deformrs.errors import InputError, LogitError, ModelError
from deformrs.geometry import size_of
from deformrs.inputs import (
    Dataset,
    LabelledImages,
    as_dataset,
    as_image,
    as_label,
    check_dataset,
    image_name,
    item_of,
    labels_of,
    read_image,
    source_of,
)
from deformrs.plan import SamplingPlan, seed_or_fresh
from deformrs.randomness import Stage, generator_for
from deformrs.rule import GIVEN_UP
from deformrs.runs import Result, Run
from deformrs.runs.folder import (
    CERTIFICATES,
    GENERATOR,
    TORCH,
    begun_config,
    run_settings,
)
from deformrs.runs.records import image_digest
from deformrs.runs.request import Simultaneous
from deformrs.runs.tally import Tally
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import Method
from deformrs.stopping import Stopping
from deformrs.units import Unit

# On a GPU a group of images fills this many batches: the last, partial one then costs little.
_BATCHES = 128
_MOST_IMAGES = 512
_MOST_BYTES = 2**29
# Where sampling stops early, an image gets few samples between two looks, and many images are
# needed to fill a batch. A process that is killed loses one group.
_IMAGES_WHEN_STOPPING = {"cpu": 32, "cuda": 2048}
_NUMBERS_WHEN_STOPPING = 2**20


def certify_dataset(
    classifier: SmoothedClassifier,
    images: LabelledImages,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int | None = None,
    method: str | None = None,
    stopping: Stopping | None = None,
    skip: int = 1,
    max: int | None = None,
    simultaneous: bool = False,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    progress: ProgressChoice = None,
) -> Iterator[Result]:
    """Certify every `skip`-th of the first `max` images; yield the results in order.

    `images` is an `ImageSet`, a list of pairs (image, label), a dataset of torch or Hugging Face, a
    pair of arrays (images, labels), or a `DataLoader` that does not shuffle. Images are those that
    `SmoothedClassifier` takes.

    `n`, `n0`, `alpha`, `seed`, `method` and `stopping` are those of `SmoothedClassifier.certify`.
    All images and labels are checked before the first is sampled; with `same_size` they must agree
    in size. `together` is the number of images that share batches; by default as many as keep the
    device busy.

    With `simultaneous`, the selected images share alpha equally. A run is then bound to their
    number, and is not extended.

    `progress` None shows a bar in a terminal or a notebook, False does not; a `Progress` has
    callbacks.

    With `out`, each result is on disk before it is yielded, and an interrupted run is resumed, with
    the seed and the method it began with: finished results are read from the folder. `about` is
    added to the recorded configuration of model, noise and sampling.

    Guarantee: each certificate is false with probability at most alpha, and depends on the model,
    the image, its index and the seed only: not on the other images or on interruptions. With
    `simultaneous`, any of them is false with probability at most alpha.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_half(images):
    ...     left, right = images[..., :4], images[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5))
    >>> [result.correct for result in certify_dataset(g, [(image, 1), (image, 0)], n=100)]
    [True, False]
    """
    plan = SamplingPlan(n, n0, alpha, run_seed(out, seed), run_method(out, method, n), stopping)
    return begin(
        classifier,
        images,
        plan,
        skip=skip,
        max=max,
        simultaneous=simultaneous,
        out=out,
        about=about,
        same_size=same_size,
        together=together,
        progress=progress,
    )[1]


def run_seed(out: Path | str | None, seed: int | None) -> int:
    """Return the seed of a run: the one given, that of the run in `out`, or a fresh one.

    Guarantee: the seed of a run without samples is fresh unless it is given.
    """
    config = None if out is None else begun_config(Path(out))
    if seed is None and config is not None:
        stored = config.get("seed")
        seed = stored if isinstance(stored, int) else None
    return seed_or_fresh(seed)


def run_method(out: Path | str | None, method: str | None, n: int) -> str:
    """Return the method of a run: the one given, that of the run in `out`, or "auto".

    The last look is at `n`, so that a run with another n is refused for that, not for its method.
    """
    if method is not None:
        return method
    config = None if out is None else begun_config(Path(out))
    return Method.parse((config or {}).get("method", "auto")).at_most(n).name


def begin(
    classifier: SmoothedClassifier,
    images: LabelledImages,
    plan: SamplingPlan,
    *,
    skip: int = 1,
    max: int | None = None,
    simultaneous: bool = False,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    progress: ProgressChoice = None,
) -> tuple[Config, Iterator[Result]]:
    """Check the arguments of `certify_dataset`; return the run's configuration and its results."""
    images = as_dataset(images)
    indices = select_indices(len(images), skip, max, labels_of(images))
    shared = Simultaneous(len(indices), plan.alpha).to_config() if simultaneous else {}
    if simultaneous:
        plan = plan.shared(len(indices))
    name = image_name(images, indices[0])
    image, label = item_of(images, indices[0])
    first = as_image(name, image)
    num_classes = classifier.classes_for(first)
    as_label(name, label, num_classes)
    if plan.stopping is not None:
        plan.stopping.check(classifier.deformation.space(size_of(first)))
    if out is None or not (Path(out) / CERTIFICATES).exists():  # a finished run is only read
        _check_plan(classifier, plan, images, indices, first)
        classifier.check_fixed(first, plan.n0 + plan.n)
    if together is None:  # resumed, the same batches as before
        together = _stored_together(out) or images_together(classifier, first, plan)
    check_integer("together", together, least=1)
    classifier.warm_up(first, together=together)  # whether it compiles is part of the configuration
    config = classifier_config(classifier, first)
    config |= {"n": plan.n, "n0": plan.n0, "seed": plan.seed, "skip": int(skip)}
    config |= {"together": int(together)} if together > 1 else {}
    method = plan.method_for(classifier.noise, classifier.deformation.space(size_of(first))).name
    if plan.stopping is not None:
        # The level of giving up changes which samples are drawn.
        config |= {"stopping": plan.stopping.to_config() | {"given_up": GIVEN_UP}}
    config = _with_model(config, about or {}) | shared
    if out is not None:
        Run.check(Path(out), classifier.noise, plan.alpha, method, config)
    size = size_of(first) if same_size or classifier.sampler.compiled != "no" else None

    def read(places: Sequence[int]) -> Group:
        return Group.read(images, places, together, classifier, num_classes)

    def results() -> Iterator[Result]:
        opened = (
            nullcontext()
            if out is None
            else Run.open(Path(out), classifier.noise, plan.alpha, method, config, indices)
        )
        samples = None if plan.stopping else plan.n0 + plan.n
        replay = Replay() if classifier.check_model else None

        def check_replayed(run: Run | None, *, end: bool = False) -> None:
            difference = None if replay is None else replay.difference(end=end)
            if difference is not None:
                name = image_name(images, difference.index)
                error = ModelError(
                    f"the prediction for {name}",
                    f"not repeated ({difference.changed} of {difference.total} of the same samples "
                    "now have another class)",
                    "must be a fixed function of the image: no result of this run can be trusted",
                    "find what the model remembers or draws at random, and begin another run",
                )
                if run is not None:
                    run.mark_unsound(str(error))
                raise error

        with opened as run, CertificationBar(progress, len(indices), samples) as bar:
            done = {result.index: result for result in run.results} if run else {}
            missing = [index for index in indices if index not in done]
            if missing:
                _check_plan(classifier, plan, images, indices, first)
            check_dataset(images, missing, num_classes, size=size, progress=bar.progress)
            groups = [indices[i : i + together] for i in range(0, len(indices), together)]
            if missing and done:
                stored = min(done)  # it may lie beyond the images selected now
                if stored >= len(images):
                    raise InputError(
                        "the data",
                        f"of {len(images)} images, but the run in {out} has image {stored}",
                        "must be the dataset that the run began with",
                        "restore it, or begin another run",
                    )
                known = (group for group in groups if done.keys() & set(group))
                resumed = next(known, [stored])
                with _named(images):
                    read(resumed).check_same_model(done, plan)
            for places in groups:
                group = read(places)
                group.check_unchanged(done)
                if not done.keys() >= set(places):
                    # The whole group again: its batches are then the same as without interruption.
                    counting = run.tally(group.names) if run else nullcontext()
                    with _named(images), counting as tally:
                        certified = group.certify(plan, bar.progress, tally, replay)
                    check_replayed(run)  # before its results are stored
                    made = [result for result in certified if result.index not in done]
                    if run and tally:
                        run.add_all(made, seconds=tally.seconds / len(places))
                    done |= {result.index: result for result in made}
                for index in places:
                    bar.finish()
                    yield done.pop(index)
            check_replayed(run, end=True)

    settings = run_settings(classifier.noise, plan.alpha, method)
    return config | settings, results()


def select_indices(
    total: int, skip: int = 1, max: int | None = None, labels: Sequence[int] | None = None
) -> Sequence[int]:
    """Return the indices of the images to certify, in that order.

    They are every `skip`-th of the first `max` images. If `labels` come class by class, as those
    of class folders, the first images would be of one class: `max` then takes the first of each
    class, then the second of each, and so on. A larger `max` adds images at the end.

    >>> list(select_indices(6, max=4, labels=[0, 0, 0, 1, 1, 1]))
    [0, 3, 1, 4]
    """
    check_integer("skip", skip, least=1)
    if max is not None:
        check_integer("max", max, least=1)
    if total < 1:
        raise InputError("the data", "empty", "must have at least one image", "add some")
    indices: Sequence[int] = range(0, total, skip)
    if max is None:
        return indices
    if labels is not None and len(list(groupby(labels))) == len(set(labels)):
        earlier: Counter[int] = Counter()
        places = {}
        for index in indices:
            places[index] = earlier[labels[index]]
            earlier[labels[index]] += 1
        indices = sorted(indices, key=places.__getitem__)
    return indices[: math.ceil(max / skip)]


def _check_plan(
    classifier: SmoothedClassifier,
    plan: SamplingPlan,
    images: Dataset,
    indices: Sequence[int],
    first: Tensor,
) -> None:
    """Raise if no image, whatever its size, could be certified as the plan requests."""
    try:
        classifier.check_plan(plan, first)
    except InputError:
        space = classifier.deformation.space(size_of(first))
        if all(block.unit in (Unit.ANGLE, Unit.FRACTION) for block in space.blocks):
            raise  # the size makes no difference
        sizes = {size_of(first)}
        for index in indices:
            with suppress(InputError):  # faulty images are reported by name later
                image, _ = read_image(images, index, classifier.classes_for(first))
                if size_of(image) not in sizes:
                    sizes.add(size_of(image))
                    classifier.check_plan(plan, image)
                    return
        raise


@contextmanager
def _named(images: Dataset) -> Iterator[None]:
    """Let an error about the logits of an image say where the image comes from."""
    try:
        yield
    except LogitError as error:
        source = source_of(images, error.index)
        name = f"{error.index}" + (f" ({source})" if source else "")
        raise LogitError.of(error.index, deformed=error.deformed, name=name) from error


def classifier_config(classifier: SmoothedClassifier, image: Tensor) -> Config:
    """Return what class counts depend on, except for the image, its index, the seed and n.

    `image` is any of the images: a plain function runs where they are.
    """
    compiled, device = classifier.sampler.compiled, classifier.device_for(image)
    config: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(device),
        "model": network_config(classifier.model),
        "num_classes": classifier.num_classes,
        "deformation": classifier.deformation.to_config(),
        "padding": classifier.padding,
        "batch_size": classifier.batch_size,
    }
    generator = generator_for(device, seed=0).name
    config |= {GENERATOR: generator} if generator != TORCH else {}
    return config | ({"compiled": compiled} if compiled != "no" else {})


def network_config(model: object) -> Config:
    """Return a network's class and the digest of its weights; of a function only its name."""
    if not isinstance(model, nn.Module):
        return {"function": getattr(model, "__qualname__", type(model).__qualname__)}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor):  # extra state may be anything
            digest.update(f"{name} {tensor_digest(tensor)}".encode())
    return {"network": type(model).__qualname__, "parameters": digest.hexdigest()[:16]}


def device_name(device: torch.device) -> str:
    """Return the kind of device: results repeat on one kind only."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def tensor_digest(tensor: Tensor) -> str:
    """Return the digest of an image or of a weight."""
    array = tensor.detach().cpu().contiguous()
    content = array.reshape(-1).view(torch.uint8).numpy().tobytes()
    return image_digest(tuple(array.shape), str(array.dtype).removeprefix("torch."), content)


def _with_model(config: Config, about: Config) -> Config:
    """Return both configurations; what either knows of the model is kept."""
    ours, theirs = config.get("model"), about.get("model")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        about = about | {"model": theirs | ours}
    return config | about


def _stored_together(out: Path | str | None) -> int | None:
    """Return how many images share batches in the run that has begun in a folder, if one has."""
    config = None if out is None else begun_config(Path(out))
    if config is None:
        return None
    stored = config.get("together", 1)
    return stored if isinstance(stored, int) and 0 < stored < 2**31 else None


def images_together(classifier: SmoothedClassifier, image: Tensor, plan: SamplingPlan) -> int:
    """Return how many images share batches. With a fixed n, one image keeps a CPU busy."""
    device = classifier.device_for(image).type
    if plan.stopping is not None:
        most = _IMAGES_WHEN_STOPPING.get(device, 1)
        if device == "cpu":  # large images take seconds each, and their results come together
            most = min(most, _NUMBERS_WHEN_STOPPING // image.numel())
    elif device == "cuda":
        most = min(_MOST_IMAGES, -(-_BATCHES * classifier.batch_size // plan.n))
    else:
        most = 1
    return max(1, min(most, _MOST_BYTES // (image.numel() * image.element_size())))


@dataclass(frozen=True, eq=False)
class Group:
    """Images that are certified together.

    How an image's samples are batched depends on its place among the selected images alone: an
    incomplete group is filled up with its last image. (Not where sampling stops early: there
    batches depend on all images anyway.) Images of different sizes are certified one by one.
    """

    classifier: SmoothedClassifier
    indices: Sequence[int]
    images: tuple[Tensor, ...]
    labels: tuple[int, ...]
    sources: tuple[str, ...]
    together: int

    @classmethod
    def read(
        cls,
        images: Dataset,
        indices: Sequence[int],
        together: int,
        classifier: SmoothedClassifier,
        num_classes: int,
    ) -> Group:
        pairs = [read_image(images, index, num_classes) for index in indices]
        tensors, labels = zip(*pairs, strict=True)
        sources = tuple(source_of(images, index) for index in indices)
        return cls(classifier, indices, tensors, labels, sources, together)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of every image."""
        return [tensor_digest(image) for image in self.images]

    @property
    def names(self) -> list[Config]:
        """What tells the images of this group from others."""
        columns = zip(self.indices, self.labels, self.digests, strict=True)
        return [{"index": i, "label": label, "pixels": pixels} for i, label, pixels in columns]

    def certify(
        self, plan: SamplingPlan, progress: Progress, tally: Tally | None, replay: Replay | None
    ) -> list[Result]:
        """Return the results of the group, in order."""
        certificates, predictions = [], []
        batches = [*self._batches(plan)]
        if len(batches) > 1:
            tally = None  # it knows the steps of one batch of images only
        for images, indices in batches:
            certificates += self.classifier.certify_batch(
                images, indices, plan, progress, tally, replay
            )
            predictions += self.classifier.classify(images, indices)
        # The copies that fill up a group come last, and are dropped here.
        columns = (self.labels, certificates, predictions, self.sources, self.digests)
        return [
            Result(index, *values)
            for index, values in zip(self.indices, zip(*columns, strict=False), strict=True)
        ]

    def check_same_model(
        self,
        done: Mapping[int, Result],
        plan: SamplingPlan,
        *,
        estimated: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Raise unless the model still gives the selection counts of the stored results.

        With `estimated`, all of their counts. Weights are compared by their digest; a plain
        function can only be tried. The bound of each must be the one that its selection chooses.
        """
        self.check_unchanged(done)
        progress = progress or Progress()
        found: list[tuple[Counts | tuple[int, ...], int | None]] = []
        if estimated:
            for made in self.certify(plan, progress, None, None):
                found.append((made.certificate.counts, made.plain))
        else:
            for images, indices in self._batches(plan):
                selections = self.classifier.count_batch(
                    images, indices, plan.n0, Stage.SELECT, seed=plan.seed, progress=progress
                )
                found += zip(selections, self.classifier.classify(images, indices), strict=True)
        for index, again in zip(self.indices, found, strict=False):
            result = done.get(index)
            if result is None:
                continue
            own = result.certificate
            stored = own.counts if estimated else own.counts.selection
            if again != (stored, result.plain):
                raise ModelError(
                    f"the prediction for image {index} ({result.source})",
                    "not the one stored when the run began",
                    "must be the same: results of two functions must not be mixed",
                    "restore the model and the deformation, or begin another run",
                )
            chosen = plan.method_for(self.classifier.noise, own.space).chosen(own.counts)
            if own.method != chosen.name:
                raise InputError(
                    f"the bound of image {index} ({result.source})",
                    own.method,
                    f"must be {chosen.name}, which its selection sample chooses",
                    "do not trust the run: a bound chosen afterwards errs more often than alpha",
                )

    def check_unchanged(self, done: Mapping[int, Result]) -> None:
        """Raise if an image or label differs from the one of its stored result."""
        columns = zip(self.indices, self.images, self.labels, self.digests, strict=True)
        for index, image, label, pixels in columns:
            result = done.get(index)
            if result and (result.pixels != pixels or result.label != label):
                raise InputError(
                    f"image {index} ({result.source})",
                    f"not the one certified, of size {size_of(image)} and label {label}",
                    "must not change while a run goes on",
                    "restore it, or begin another run",
                )

    def _batches(self, plan: SamplingPlan) -> Iterator[tuple[list[Tensor], list[int]]]:
        """Yield the images, with their indices, that are sampled at once."""
        if len({(image.shape, image.dtype) for image in self.images}) > 1:
            for image, index in zip(self.images, self.indices, strict=True):
                yield [image], [index]
            return
        size = self.together
        if plan.stopping is not None:
            # A single image left over would need a program of its own to be compiled.
            size = min(size, 1 if self.classifier.sampler.compiled == "no" else 2)
        copies = max(0, size - len(self.images))
        yield (
            [*self.images, *(self.images[-1:] * copies)],
            [*self.indices, *([self.indices[-1]] * copies)],
        )
