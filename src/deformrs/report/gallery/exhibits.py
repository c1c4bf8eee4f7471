"""Exhibits: images and their certificates, drawn under deformations from the certified sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_integer, check_seed
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import Padding, check_images, size_of
from deformrs.report.gallery.tiles import (
    ImageTile,
    TileRow,
    class_label,
    deform,
    draw_sheet,
    reach_px,
    shift_label,
)
from deformrs.runs import Result
from deformrs.sampling import Progress
from deformrs.smoothing import SmoothedClassifier
from deformrs.space import Space


@dataclass(frozen=True)
class Exhibit:
    """An image, [c, h, w], and its certificate.

    `title` is the heading of its row, such as a file name. `index` is the image's number in its
    dataset: the noise of its predictions depends on it.
    """

    image: Tensor
    certificate: Certificate
    title: str = ""
    index: int = 0

    def __post_init__(self) -> None:
        check_images("the image", self.image, rank=3)
        check_seed("index", self.index)
        if size_of(self.image) != self.certificate.space.size:
            raise InputError(
                "the image",
                f"of size {size_of(self.image)}",
                f"must be the one certified, of size {self.certificate.space.size}",
                "match images and certificates",
            )

    def check_deformation(self, deformation: Deformation) -> None:
        """Raise unless the certificate is about that deformation's parameters."""
        space, own = self.certificate.space, deformation.space(size_of(self.image))
        if space != own:
            raise InputError(
                "the deformation",
                f"{deformation!r}, of parameters {_describe(own)}",
                f"must be the one certified, of parameters {_describe(space)}",
                "match deformation and certificate",
            )

    def check_classifier(self, classifier: SmoothedClassifier) -> None:
        """Raise unless the certificate can be that classifier's."""
        self.check_deformation(classifier.deformation)
        own = classifier.noise, classifier.num_classes
        certified = self.certificate.law, len(self.certificate.counts.estimation)
        for name, value, rule in zip(("the noise", "num_classes"), own, certified, strict=True):
            if value != rule:
                raise InputError(
                    f"{name} of the classifier",
                    value,
                    f"must be the certificate's, {rule}",
                    "match classifier and certificate",
                )


@dataclass(frozen=True)
class Sample:
    """A deformed image, [c, h, w], and the smoothed prediction for it. shift: [d]

    `prediction` is None if the classifier abstains; `reach_px` is the largest distance between a
    pixel and where it is read.
    """

    shift: NDArray[np.float64]
    image: Tensor
    prediction: int | None
    reach_px: float


class Verdict(Enum):
    """How a prediction inside a certified set compares with the certificate: mark and colour."""

    SAME = "✓", "#1a7f37"
    ABSTAINS = "–", "#6e7781"
    DIFFERS = "✗", "#cf222e"

    @property
    def mark(self) -> str:
        return self.value[0]

    @property
    def colour(self) -> str:
        return self.value[1]


@dataclass(frozen=True)
class ExhibitSamples:
    """An exhibit and samples from its certified set, none if its certificate abstains.

    `n` and `alpha` are those of every prediction.
    """

    exhibit: Exhibit
    original: Sample
    samples: tuple[Sample, ...]
    n: int
    alpha: float

    def verdict(self, sample: Sample) -> Verdict:
        """Compare a prediction with the certificate.

        One that differs contradicts the certificate, which happens with probability at most alpha
        and is always shown.
        """
        if sample.prediction is None:
            return Verdict.ABSTAINS
        same = sample.prediction == self.exhibit.certificate.prediction
        return Verdict.SAME if same else Verdict.DIFFERS


def certified_shifts(certificate: Certificate, count: int, seed: int = 0) -> NDArray[np.float64]:
    """Return shifts from all over the certified set: [count, d].

    A single parameter runs evenly from one end of the certified range to the other. Several are
    drawn at random, each block at its radius, and scaled down until the whole is covered.

    Guarantee: the certificate covers every one of these shifts.
    """
    check_integer("the number of shifts", count, least=1)
    if certificate.prediction is None:
        raise InputError(
            "the certificate", "abstaining", "must predict a class", "choose another image"
        )
    space = certificate.space
    if space.dim == 1:
        radius = certificate.radius
        return np.linspace(-radius, radius, count)[:, None]
    generator = np.random.default_rng(seed)
    shifts = generator.standard_normal((count, space.dim))
    for index, (radius, part) in enumerate(zip(certificate.radii, space.slices, strict=True)):
        block, norm = shifts[:, part], certificate.law.norm(index)
        block *= radius / np.linalg.norm(block, ord=norm, axis=1, keepdims=True)
    for shift in shifts:
        while not certificate.covers(shift):
            shift *= 0.95
    return shifts


def one_per_class(results: Iterable[Result]) -> list[Result]:
    """Return the first result of each class that is correct, by label."""
    first: dict[int, Result] = {}
    for result in results:
        if result.correct:
            first.setdefault(result.label, result)
    return [first[label] for label in sorted(first)]


def sample_exhibit(
    classifier: SmoothedClassifier,
    exhibit: Exhibit,
    count: int,
    *,
    n: int = 200,
    alpha: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExhibitSamples:
    """Predict an exhibit and `count` deformations of it from all over its certified set.

    Each prediction takes `n` samples; `progress` receives their number after each.
    """
    exhibit.check_classifier(classifier)
    check_integer("the number of deformations", count, least=1)
    shifts = np.zeros((1, exhibit.certificate.space.dim))
    if exhibit.certificate.prediction is not None:
        shifts = np.concatenate([shifts, certified_shifts(exhibit.certificate, count, seed)])
    params = torch.from_numpy(shifts)
    deformed = deform(exhibit.image, classifier.deformation, params, classifier.padding)
    samples = []
    for shift, (image, field_px) in zip(shifts, deformed, strict=True):
        prediction = classifier.predict(
            exhibit.image, n, alpha, seed, index=exhibit.index, shift=shift.tolist()
        )
        samples.append(Sample(shift, image, prediction, reach_px(field_px)))
        if progress is not None:
            progress.sampled(n)
    return ExhibitSamples(exhibit, samples[0], tuple(samples[1:]), n, alpha)


def draw_gallery(
    exhibits: Sequence[Exhibit],
    deformation: Deformation,
    path: Path,
    *,
    columns: int = 9,
    padding: Padding = "zeros",
) -> None:
    """Draw a row for each exhibit: deformations from all over its certified set."""
    check_integer("the number of exhibits", len(exhibits), least=1)
    check_integer("columns", columns, least=1)
    rows = []
    for exhibit in exhibits:
        exhibit.check_deformation(deformation)
        params = torch.from_numpy(certified_shifts(exhibit.certificate, columns))
        images = deformation.apply(exhibit.image.detach().cpu(), params, padding)
        tiles = [ImageTile(image) for image in images]
        rows.append(TileRow(tiles, exhibit.title, exhibit.certificate.claim))
    draw_sheet(rows, path)


def draw_samples(
    rows: Sequence[ExhibitSamples], path: Path, *, names: Sequence[str] | None = None
) -> None:
    """Draw a row for each exhibit: the image, then its samples, with predictions beneath.

    `names` are those of the classes, in their order.
    """
    draw_sheet([_samples_row(row, names) for row in rows], path, caption=_caption(rows))


def _samples_row(row: ExhibitSamples, names: Sequence[str] | None) -> TileRow:
    certificate = row.exhibit.certificate
    tiles = [_sample_tile(row, row.original, "original", names)]
    for sample in row.samples:
        label = shift_label(sample.shift, sample.reach_px, certificate.space)
        tiles.append(_sample_tile(row, sample, label, names))
    claim = certificate.claim
    if certificate.prediction is not None:
        name = class_label(certificate.prediction, names)
        claim = name + claim.removeprefix(f"class {certificate.prediction}")
    noise = certificate.law.describe(certificate.space)
    return TileRow(tiles, row.exhibit.title, f"{claim}; {noise}")


def _sample_tile(
    row: ExhibitSamples, sample: Sample, label: str, names: Sequence[str] | None
) -> ImageTile:
    predicted = "abstains" if sample.prediction is None else class_label(sample.prediction, names)
    if row.exhibit.certificate.prediction is None:  # there is nothing to compare with
        return ImageTile(sample.image, (predicted, label))
    verdict = row.verdict(sample)
    return ImageTile(sample.image, (f"{verdict.mark} {predicted}", label), verdict.colour)


def _caption(rows: Sequence[ExhibitSamples]) -> str:
    verdicts = [row.verdict(sample) for row in rows for sample in row.samples]
    if not verdicts:
        return ""
    same, abstaining, different = (verdicts.count(verdict) for verdict in Verdict)
    settings = " or ".join(dict.fromkeys(f"n = {row.n:,}, alpha = {row.alpha:g}" for row in rows))
    caption = (
        "Deformations from inside the certified set. Beneath each: the smoothed prediction "
        f"({settings}; {Verdict.SAME.mark} as certified, {Verdict.ABSTAINS.mark} abstains, "
        f"{Verdict.DIFFERS.mark} differs), then the shift or the largest distance that a pixel "
        f"moves. Of {len(verdicts)} samples {same} are as certified, {abstaining} abstain, "
        f"{different} differ."
    )
    if different:
        caption += (
            " Where one differs, either the prediction or the certificate is false, each of which "
            "happens with probability at most its alpha."
        )
    return caption


def _describe(space: Space) -> str:
    return " + ".join(f"{block.family} ({block.dim})" for block in space.blocks)
