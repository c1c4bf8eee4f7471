"""Exhibits: images and their certificates, drawn under deformations from the certified sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_integer, check_seed
from deformrs.config import Config
from deformrs.data.loading import data_of
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.fingerprints import tensor_digest
from deformrs.geometry import Padding, check_images, size_of
from deformrs.inputs import Dataset, ImageLike, LabelledImages, as_dataset, as_image, as_pair
from deformrs.plan import seed_or_fresh
from deformrs.report.curves import save_figure
from deformrs.report.gallery.tiles import (
    DPI,
    FieldTile,
    ImageTile,
    Tile,
    TileRow,
    check_figure_path,
    class_label,
    deform,
    lay_out,
    reach_px,
    shift_lines,
)
from deformrs.runs import CertifiedRun, Result, StoredRun, read_run
from deformrs.sampling import Progress
from deformrs.smoothing import SmoothedClassifier
from deformrs.space import Space

MOST_ROWS = 8
"""Images that are drawn unless some are named."""
MOST_SAMPLES = 10_000
"""Samples of a prediction, if its certificate took no more. Most are decided after FIRST_LOOK."""
FIRST_LOOK = 30

Images = ImageLike | Sequence[ImageLike] | LabelledImages
"""An image, several, or a dataset; `deformrs.inputs` says of which kinds."""


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
        own = classifier.noise, classifier.classes_for(self.image)
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

    `prediction` is None if the classifier abstains or was not run. `field_px`, [h, w, 2], is the
    vector field in pixels.
    """

    shift: NDArray[np.float64]
    image: Tensor
    prediction: int | None
    field_px: Tensor

    @property
    def reach_px(self) -> float:
        """The largest distance, in pixels, between a pixel and where it is read."""
        return reach_px(self.field_px)


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

    `n` is the largest number of samples of a prediction and `alpha` its level; `n` is None where
    nothing was predicted.
    """

    exhibit: Exhibit
    original: Sample
    samples: tuple[Sample, ...]
    n: int | None = None
    alpha: float | None = None

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


def deform_exhibit(
    exhibit: Exhibit,
    deformation: Deformation,
    count: int,
    *,
    padding: Padding = "zeros",
    seed: int = 0,
) -> ExhibitSamples:
    """Return an exhibit and `count` deformations of it from all over its certified set."""
    exhibit.check_deformation(deformation)
    check_integer("the number of deformations", count, least=1)
    shifts = np.zeros((1, exhibit.certificate.space.dim))
    if exhibit.certificate.prediction is not None:
        shifts = np.concatenate([shifts, certified_shifts(exhibit.certificate, count, seed)])
    deformed = deform(exhibit.image, deformation, torch.from_numpy(shifts), padding)
    original, *samples = [
        Sample(shift, image, None, field_px)
        for shift, (image, field_px) in zip(shifts, deformed, strict=True)
    ]
    return ExhibitSamples(exhibit, original, tuple(samples))


def sample_exhibit(
    classifier: SmoothedClassifier,
    exhibit: Exhibit,
    count: int,
    *,
    n: int | None = None,
    alpha: float = 1e-3,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ExhibitSamples:
    """Deform an exhibit as `deform_exhibit` does, and predict every image.

    Each prediction takes as many samples as decide it, at most `n`: by default MOST_SAMPLES, or
    those of the certificate if these are more. By default the same deformations are shown every
    time, and their noise is random. `progress` receives the number of samples.
    """
    exhibit.check_classifier(classifier)
    row = deform_exhibit(
        exhibit, classifier.deformation, count, padding=classifier.padding, seed=seed or 0
    )
    seed = seed_or_fresh(seed)
    most = max(MOST_SAMPLES, exhibit.certificate.counts.n) if n is None else n
    original, *samples = [
        dataclasses.replace(
            sample,
            prediction=_predict(
                classifier, exhibit, sample.shift.tolist(), most, alpha, seed, progress
            ),
        )
        for sample in (row.original, *row.samples)
    ]
    return ExhibitSamples(exhibit, original, tuple(samples), most, alpha)


def _predict(
    classifier: SmoothedClassifier,
    exhibit: Exhibit,
    shift: Sequence[float],
    n: int,
    alpha: float,
    seed: int,
    progress: Progress | None,
) -> int | None:
    """Predict an exhibit under a shift from as many samples as decide it, at most n.

    Guarantee: a class other than the most probable one is returned with probability at most alpha:
    the sample sizes of the looks are fixed beforehand, and each look has its share of alpha.
    """
    ends = looks(n)
    for end in ends:
        prediction = classifier.predict(
            exhibit.image, end, alpha / len(ends), seed, index=exhibit.index, shift=shift
        )
        if progress is not None:
            progress.sampled(end)
        if prediction is not None:
            return prediction
    return None


def looks(n: int) -> tuple[int, ...]:
    """Return the sample sizes at which a prediction is looked at, each four times the last.

    >>> looks(40), looks(10_000)
    ((40,), (30, 120, 480, 1920, 10000))
    """
    check_integer("n", n, least=1)
    ends = [n]
    for k in range(64):
        end = FIRST_LOOK * 4**k
        if 2 * end > n:
            break
        ends.insert(k, end)
    return tuple(ends)


def gallery(
    source: SmoothedClassifier | StoredRun | Path | str,
    images: Images | None = None,
    *,
    indices: Sequence[int] | None = None,
    columns: int = 8,
    n: int | None = None,
    alpha: float | None = None,
    seed: int | None = None,
    class_names: Sequence[str] | None = None,
    fields: bool = False,
    path: Path | str | None = None,
) -> Figure:
    """Return a figure of images under deformations from all over their certified sets.

    `source` is a run, which needs no model and samples nothing: each row is an image with
    deformations that its certificate covers. Or it is a smoothed classifier: its `images` are
    certified with `n` samples, 1,000 by default, and the prediction for every deformation stands
    beneath it.

    `images` are one image, [c, h, w] in [0, 1], several, or a dataset as for `certify_dataset`; a
    run's are found by its configuration unless they are given. `indices` choose among them; by
    default the first certified image of each class of a run, or the first images, at most eight.
    With `fields`, each deformation is followed by its vector field. With `path`, the figure is also
    written there, as .png, .svg or .pdf.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform, gallery
    >>> def brighter_half(images):
    ...     left, right = images[..., :4], images[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5), num_classes=2)
    >>> len(gallery(g, [image], columns=4).axes)  # the image and four rotations of it
    5
    """
    if path is not None:
        check_figure_path(Path(path))  # before sampling, not after it
    check_integer("columns", columns, least=1)
    if isinstance(source, SmoothedClassifier):
        n, alpha = 1000 if n is None else n, 1e-3 if alpha is None else alpha
        rows = _certified_rows(source, images, indices, columns, n, alpha, seed)
    elif n is not None:
        raise InputError("n", n, "is that of the run", "leave it out, or give a classifier")
    else:
        run = _read(source, alpha)
        rows = _stored_rows(run, images, indices, columns, seed or 0)
        class_names = class_names or stored_names(run.config)
    figure = samples_figure(rows, class_names, fields=fields)
    if path is not None:
        save_figure(figure, Path(path), dpi=DPI)
    return figure


def _read(source: object, alpha: float | None) -> StoredRun:
    if isinstance(source, StoredRun):
        return source if alpha is None else read_run(source.folder, alpha=alpha)
    if isinstance(source, Path | str):
        return read_run(source, alpha=alpha)
    if isinstance(source, CertifiedRun):
        raise InputError(
            "source",
            "a run in memory",
            "must be stored, to have its images found again",
            "certify(..., out='runs/name')",
        )
    raise InputError(
        "source", repr(source), "must be a run or a SmoothedClassifier", 'e.g. "runs/quickstart"'
    )


def stored_names(config: Config) -> Sequence[str] | None:
    """Return the class names in the configuration of a run, None if it has none."""
    data = config.get("data")
    names = data.get("class_names") if isinstance(data, dict) else None
    return list(map(str, names)) if isinstance(names, list) else None


def _stored_rows(
    run: StoredRun,
    images: Images | None,
    indices: Sequence[int] | None,
    columns: int,
    seed: int,
) -> list[ExhibitSamples]:
    results = {result.index: result for result in run.results}
    if indices is None:
        indices = sorted(result.index for result in one_per_class(run.results))[:MOST_ROWS]
    for index in indices:
        if index not in results:
            raise InputError(
                "the image", index, f"is not in the run {run.folder}", "choose a certified one"
            )
    if not indices:
        raise InputError(
            f"the run {run.folder}",
            "without a certified image to draw",
            "must have a correct one",
            "name images by indices",
        )
    dataset = data_of(run) if images is None else _indexed(images)
    settings: Any = run.config
    deformation = Deformation.from_config(settings["deformation"])
    rows = []
    for index in indices:
        result = results[index]
        image = _image_of(dataset, index)
        if result.pixels and result.pixels != tensor_digest(image):
            raise changed_image(index)
        exhibit = Exhibit(image, result.certificate, result.source, index)
        rows.append(
            deform_exhibit(exhibit, deformation, columns, padding=settings["padding"], seed=seed)
        )
    return rows


def _certified_rows(
    classifier: SmoothedClassifier,
    images: Images | None,
    indices: Sequence[int] | None,
    columns: int,
    n: int,
    alpha: float,
    seed: int | None,
) -> list[ExhibitSamples]:
    if images is None:
        raise InputError("images", None, "must be given for a classifier", "e.g. [image]")
    dataset = _indexed(images)
    if indices is None:
        indices = range(min(MOST_ROWS, len(dataset)))
    rows = []
    for index in indices:
        image = _image_of(dataset, index)
        certificate = classifier.certify(image, n, alpha=alpha, seed=seed, index=index)
        exhibit = Exhibit(image, certificate, index=index)
        rows.append(sample_exhibit(classifier, exhibit, columns, alpha=alpha, seed=seed))
    return rows


def _indexed(images: Images) -> Dataset:
    """Return images by index, with or without labels."""
    several = images if isinstance(images, list | tuple) else [images]
    if several and all(_is_image(one) for one in several):
        return several
    if isinstance(images, Tensor | np.ndarray):
        return list(images)
    return as_dataset(images)  # type: ignore[arg-type]  # it checks that


def _is_image(value: object) -> bool:
    array = isinstance(value, Tensor | np.ndarray) and value.ndim in (2, 3)
    return array or isinstance(value, Image.Image)


def _image_of(images: Dataset, index: int) -> Tensor:
    if not 0 <= index < len(images):
        raise InputError(
            "the image", index, f"must lie in [0, {len(images) - 1}]", "choose another"
        )
    name, item = f"image {index}", images[index]
    return as_image(name, item if _is_image(item) else as_pair(name, item)[0])  # type: ignore[arg-type]


def changed_image(index: int) -> InputError:
    """Return the error for an image whose certificate is about other pixels."""
    return InputError(
        f"image {index}", "not the one certified", "must be unchanged", "restore the data"
    )


def samples_figure(
    rows: Sequence[ExhibitSamples], names: Sequence[str] | None = None, *, fields: bool = False
) -> Figure:
    """Return a figure with a row for each exhibit: the image and its samples.

    Beneath each stand the prediction, if there is one, and the shift. `names` are those of the
    classes, in their order. A single parameter increases from left to right. With `fields`, each
    sample is followed by its vector field.
    """
    return lay_out([_samples_row(row, names, fields) for row in rows], _caption(rows))


def draw_samples(
    rows: Sequence[ExhibitSamples],
    path: Path,
    *,
    names: Sequence[str] | None = None,
    fields: bool = False,
) -> None:
    """Write the figure of `samples_figure` as PNG, SVG or PDF."""
    check_figure_path(path)
    save_figure(samples_figure(rows, names, fields=fields), path, dpi=DPI)


def _samples_row(row: ExhibitSamples, names: Sequence[str] | None, fields: bool = False) -> TileRow:
    certificate = row.exhibit.certificate
    samples = [row.original, *row.samples]
    if certificate.space.dim == 1:
        samples.sort(key=lambda sample: float(sample.shift[0]))
    tiles: list[Tile] = []
    for sample in samples:
        tiles.append(_sample_tile(row, sample, names))
        if fields and sample is not row.original:
            tiles.append(FieldTile(sample.field_px))
    claim = certificate.claim
    if certificate.prediction is not None:
        name = class_label(certificate.prediction, names)
        claim = f"{name}: holds for {certificate.reach}"
    noise = certificate.law.describe(certificate.space)
    return TileRow(tiles, row.exhibit.title, f"{claim}; {noise}")


def _sample_tile(row: ExhibitSamples, sample: Sample, names: Sequence[str] | None) -> ImageTile:
    certificate = row.exhibit.certificate
    lines = (
        ("original",)
        if sample is row.original
        else shift_lines(sample.shift, sample.reach_px, certificate.space)
    )
    if row.n is None:
        return ImageTile(sample.image, lines)
    predicted = "abstains" if sample.prediction is None else class_label(sample.prediction, names)
    if certificate.prediction is None:  # there is nothing to compare with
        return ImageTile(sample.image, (predicted, *lines))
    verdict = row.verdict(sample)
    return ImageTile(sample.image, (f"{verdict.mark} {predicted}", *lines), verdict.colour)


def _caption(rows: Sequence[ExhibitSamples]) -> str:
    if not any(row.samples for row in rows):
        return ""
    spaces = {row.exhibit.certificate.space for row in rows}
    beneath = "the shift"
    if any(space.dim > 1 for space in spaces):
        beneath += " or, of several parameters, the largest distance that a pixel moves"
    if all(row.n is None for row in rows):
        return f"Deformations from inside the certified set. Beneath each: {beneath}."
    verdicts = [row.verdict(sample) for row in rows for sample in row.samples]
    same, abstaining, different = (verdicts.count(verdict) for verdict in Verdict)
    settings = " or ".join(dict.fromkeys(map(_settings_words, rows)))
    caption = (
        "Deformations from inside the certified set. Beneath each: the smoothed prediction "
        f"({settings}; {Verdict.SAME.mark} as certified, {Verdict.ABSTAINS.mark} abstains, "
        f"{Verdict.DIFFERS.mark} differs), then {beneath}. "
        f"Of {len(verdicts)} samples {same} are as certified, {abstaining} abstain, "
        f"{different} differ."
    )
    if different:
        caption += (
            " Where one differs, either the prediction or the certificate is false, each of which "
            "happens with probability at most its alpha."
        )
    return caption


def _settings_words(row: ExhibitSamples) -> str:
    assert row.n is not None
    samples = f"n = {row.n:,}" if len(looks(row.n)) == 1 else f"at most {row.n:,} samples"
    return f"{samples}, alpha = {row.alpha:g}"


def _describe(space: Space) -> str:
    return " + ".join(f"{block.family} ({block.dim})" for block in space.blocks)
