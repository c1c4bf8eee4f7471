"""Pictures that share their batches: a GPU is busy even where each has few samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.engines.identity import digest_of
from deformrs.errors import InputError, ModelError
from deformrs.geometry import size_of
from deformrs.randomness import Stage
from deformrs.runs import Result
from deformrs.sampling import Watch
from deformrs.smoothing import SmoothedClassifier
from deformrs.stopping import Stopping

_BATCHES = 128
"""That a group fills on a GPU: the last one, which is not full, then costs little."""
_MOST = 512
_BYTES = 2**29
"""That the pictures of a group may take."""
_DECIDED = {"cpu": 32, "cuda": 2048}
"""Between two looks a picture gets few samples: so many are needed to fill batches. A process that
is killed loses what it has of one group."""


def together_for(
    classifier: SmoothedClassifier, image: Tensor, n: int, stopping: Stopping | None = None
) -> int:
    """How many pictures to put together. A fixed number of samples keeps a CPU busy by itself."""
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
    """What is asked of every picture, and who is told how it goes."""

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
    """Pictures that are certified together, with their labels and where they come from.

    Where a picture lies in which batch depends on its place among the chosen ones alone: a group
    that is not full is filled up with its last picture (but not where sampling stops early, and
    batches depend on all pictures anyway). Pictures of different sizes go one by one.
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
                    f"the answer to picture {index} ({result.source})",
                    "another than when the run was begun",
                    "must be the same: results of two functions must not be mixed",
                    "restore the model and the deformation, or begin another run",
                )

    def check_unchanged(self, done: Mapping[int, Result]) -> None:
        """Raise if a picture or label is not the one that its stored result speaks of."""
        for index, image, label in zip(self.indices, self.images, self.labels, strict=True):
            result = done.get(index)
            if result and (result.pixels != digest_of(image) or result.label != label):
                raise InputError(
                    f"picture {index} ({result.source})",
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
