"""Pieces: images of a dataset that are sampled together, the unit of work of a certification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from deformrs.bars import Progress
from deformrs.certificate import Counts
from deformrs.config import Config
from deformrs.determinism import Replay
from deformrs.errors import InputError, LogitError, ModelError
from deformrs.fingerprints import tensor_digest
from deformrs.geometry import size_of
from deformrs.inputs import Dataset, read_image, source_of
from deformrs.plan import SamplingPlan
from deformrs.randomness import Stage
from deformrs.runs import Result
from deformrs.runs.tally import Tally
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import Method
from deformrs.units import Size

# On a GPU a piece fills this many batches: the last, partial one then costs little.
_BATCHES = 128
_MOST_IMAGES = 512
_MOST_BYTES = 2**29
# Where sampling stops early, an image gets few samples between two looks, and many images are
# needed to fill a batch. A process that is killed loses one piece.
_IMAGES_WHEN_STOPPING = {"cpu": 32, "cuda": 2048}
_NUMBERS_WHEN_STOPPING = 2**20


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


def check_method(result: Result, method: Method) -> None:
    """Raise unless the bound of a result is the one that its selection sample chooses."""
    own = result.certificate
    chosen = method.chosen(own.counts)
    if own.method != chosen.name:
        raise InputError(
            f"the bound of image {result.index} ({result.source})",
            own.method,
            f"must be {chosen.name}, which its selection sample chooses",
            "do not trust the run: a bound chosen afterwards errs more often than alpha",
        )


@dataclass(frozen=True)
class ImageCounts:
    """The class counts of an image, and what tells the image from others."""

    index: int
    label: int
    source: str
    """Where the image comes from, such as a file name."""
    pixels: str
    """The digest of the image."""
    size: Size
    plain: int
    """The model's own prediction without noise."""
    counts: Counts

    def certified(self, classifier: SmoothedClassifier, plan: SamplingPlan) -> Result:
        """Return the result of the image, whose counts `classifier` has sampled with that plan."""
        certificate = classifier.certificate(self.counts, self.size, plan)
        return Result(self.index, self.label, certificate, self.plain, self.source, self.pixels)


@dataclass(frozen=True, eq=False)
class Piece:
    """Images that are sampled together.

    How an image's samples are batched depends on its place among the selected images alone: an
    incomplete piece is filled up with its last image. (Not where sampling stops early: there
    batches depend on all images anyway.) Images of different sizes are sampled one by one.
    """

    indices: tuple[int, ...]
    images: tuple[Tensor, ...]
    labels: tuple[int, ...]
    sources: tuple[str, ...]

    @classmethod
    def read(cls, images: Dataset, indices: Sequence[int], num_classes: int) -> Piece:
        """Read the images with these indices from their dataset."""
        pairs = [read_image(images, index, num_classes) for index in indices]
        tensors, labels = zip(*pairs, strict=True)
        sources = tuple(source_of(images, index) for index in indices)
        return cls(tuple(indices), tensors, labels, sources)

    @cached_property
    def digests(self) -> list[str]:
        """The digest of every image."""
        return [tensor_digest(image) for image in self.images]

    @property
    def names(self) -> list[Config]:
        """What tells these images from others."""
        columns = zip(self.indices, self.labels, self.digests, strict=True)
        return [{"index": i, "label": label, "pixels": pixels} for i, label, pixels in columns]

    def sample(
        self,
        classifier: SmoothedClassifier,
        plan: SamplingPlan,
        together: int,
        *,
        progress: Progress,
        tally: Tally | None = None,
        replay: Replay | None = None,
    ) -> list[ImageCounts]:
        """Return the counts of the images, in order; `together` is the size of a full piece."""
        counts: list[Counts] = []
        predictions: list[int] = []
        batches = [*self._batches(classifier, plan, together)]
        if len(batches) > 1:
            tally = None  # it knows the steps of one batch of images only
        with self._named():
            for images, indices in batches:
                counts += classifier.sample_batch(images, indices, plan, progress, tally, replay)
                predictions += classifier.classify(images, indices)
        # The copies that fill up a piece come last, and are dropped here.
        sizes = [size_of(image) for image in self.images]
        columns = (self.labels, self.sources, self.digests, sizes, predictions, counts)
        return [
            ImageCounts(index, *values)
            for index, values in zip(self.indices, zip(*columns, strict=False), strict=True)
        ]

    def check_same_model(
        self,
        classifier: SmoothedClassifier,
        plan: SamplingPlan,
        together: int,
        done: Mapping[int, Result],
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
        found: list[tuple[Counts | tuple[int, ...], int]] = []
        if estimated:
            for made in self.sample(classifier, plan, together, progress=progress):
                found.append((made.counts, made.plain))
        else:
            with self._named():
                for images, indices in self._batches(classifier, plan, together):
                    selections = classifier.count_batch(
                        images, indices, plan.n0, Stage.SELECT, seed=plan.seed, progress=progress
                    )
                    plain = classifier.classify(images, indices)
                    found += zip(selections, plain, strict=True)
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
            check_method(result, plan.method_for(classifier.noise, own.space))

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

    def _batches(
        self, classifier: SmoothedClassifier, plan: SamplingPlan, together: int
    ) -> Iterator[tuple[list[Tensor], list[int]]]:
        """Yield the images, with their indices, that are sampled at once."""
        if len({(image.shape, image.dtype) for image in self.images}) > 1:
            for image, index in zip(self.images, self.indices, strict=True):
                yield [image], [index]
            return
        if plan.stopping is not None:
            # A single image left over would need a program of its own to be compiled.
            together = min(together, 1 if classifier.sampler.compiled == "no" else 2)
        copies = max(0, together - len(self.images))
        yield (
            [*self.images, *(self.images[-1:] * copies)],
            [*self.indices, *([self.indices[-1]] * copies)],
        )

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let an error about the logits of an image say where the image comes from."""
        try:
            yield
        except LogitError as error:
            source = self.sources[self.indices.index(error.index)]
            name = f"{error.index}" + (f" ({source})" if source else "")
            raise LogitError.of(error.index, deformed=error.deformed, name=name) from error
