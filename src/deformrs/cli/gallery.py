"""`deformrs gallery`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.cli.defaults import class_names_of, options_from_run, options_of
from deformrs.cli.jobs import check_same_model, smooth
from deformrs.cli.options import (
    DataOptions,
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    data_options,
    model_options,
    run_option,
    sampling_options,
    smoothing_options,
)
from deformrs.cli.parameters import Word, integers, is_typed
from deformrs.cli.progress import step
from deformrs.data import ImageSet, load_image
from deformrs.data.preparation import Preparation
from deformrs.dataset import tensor_digest
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import check_images, size_of
from deformrs.models import LoadedModel
from deformrs.noise import NoiseLaw
from deformrs.report.gallery.certified import Exhibit, certified_shifts
from deformrs.report.gallery.deformed import deform, reach_px
from deformrs.report.gallery.families import default_families, family_title, suggested_noise
from deformrs.report.gallery.fields import draw_fields, field_rows
from deformrs.report.gallery.growth import draw_growth
from deformrs.report.gallery.samples import CertifiedSamples, Sample, draw_rows, draw_samples
from deformrs.report.gallery.sheet import check_figure_path
from deformrs.runs import Result, read_run
from deformrs.sampling import Progress as SamplingProgress
from deformrs.smoothing import SmoothedClassifier
from deformrs.space import Space
from deformrs.statistics import check_method

if TYPE_CHECKING:
    from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions


Report = Callable[[int, int], None]
"""Called with the number of samples done and the number of all."""

Smooth = Callable[[Deformation, NoiseLaw], SmoothedClassifier]
"""Smooths one model over any deformation and noise."""


@dataclass(frozen=True)
class Sampling:
    """How many deformations a row shows, and how many samples stand behind them.

    `n` and `n0` samples go into a certificate, `predict_n` into each prediction.
    """

    columns: int = 8
    n: int = 1000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0
    predict_n: int = 200
    method: str = "clopper_pearson"

    def __post_init__(self) -> None:
        for name in ("columns", "n", "n0", "predict_n"):
            check_integer(name, getattr(self, name), least=1)
        check_alpha(self.alpha)
        check_seed("seed", self.seed)
        check_method(self.method)


@dataclass(frozen=True)
class Subject:
    """An image to be shown: [c, h, w], its number in its data set, and a title.

    A `certificate` that is known already is not sampled again.
    """

    image: Tensor
    index: int = 0
    title: str = ""
    certificate: Certificate | None = None


def exhibit(
    classifier: SmoothedClassifier,
    subjects: Sequence[Subject],
    sampling: Sampling,
    report: Report | None = None,
) -> list[CertifiedSamples]:
    """Certify every image and predict at deformations from all over its certified set."""
    check_integer("the number of images", len(subjects), least=1)
    for subject in subjects:  # before the first is sampled
        _check(subject, classifier)
    progress = _Progress(sum(_cost(subject, sampling) for subject in subjects), report)
    return [_exhibit(classifier, subject, sampling, progress) for subject in subjects]


def exhibit_families(
    smooth: Smooth,
    subject: Subject,
    sampling: Sampling,
    *,
    deformations: Sequence[Deformation] | None = None,
    noise: Callable[[Space], NoiseLaw] = suggested_noise,
    report: Report | None = None,
) -> list[CertifiedSamples]:
    """The same for one image under one deformation after another.

    Without `deformations`, an example of every registered family. The rows are called after them.
    """
    check_images("the image", subject.image, rank=3)
    if subject.certificate is not None:
        raise InputError("the certificate", "given", "cannot hold for every family", "leave it out")
    families = default_families() if deformations is None else deformations
    check_integer("the number of deformations", len(families), least=1)
    classifiers = [
        smooth(family, noise(family.space(size_of(subject.image)))) for family in families
    ]
    progress = _Progress(len(families) * _cost(subject, sampling), report)
    return [
        _exhibit(
            classifier,
            Subject(subject.image, subject.index, family_title(family)),
            sampling,
            progress,
        )
        for classifier, family in zip(classifiers, families, strict=True)
    ]


class _Progress:
    """Adds up samples and passes the sum on."""

    def __init__(self, total: int, report: Report | None) -> None:
        self.done, self.total, self.report = 0, total, report

    def add(self, samples: int) -> None:
        self.done += samples
        if self.report is not None:
            self.report(self.done, self.total)


def _cost(subject: Subject, sampling: Sampling) -> int:
    certifying = 0 if subject.certificate is not None else sampling.n0 + sampling.n
    return certifying + (1 + sampling.columns) * sampling.predict_n


def _exhibit(
    classifier: SmoothedClassifier, subject: Subject, sampling: Sampling, progress: _Progress
) -> CertifiedSamples:
    certificate = subject.certificate
    if certificate is None:
        certificate = classifier.certify(
            subject.image,
            sampling.n,
            sampling.n0,
            sampling.alpha,
            sampling.seed,
            index=subject.index,
            method=sampling.method,
            progress=SamplingProgress(sampled=progress.add),
        )
    shifts = np.zeros((1, certificate.space.dim))
    if certificate.prediction is None:
        progress.add(sampling.columns * sampling.predict_n)
    else:
        found = certified_shifts(certificate, sampling.columns, sampling.seed)
        shifts = np.concatenate([shifts, found])
    original, *samples = _predict(classifier, subject, shifts, sampling, progress)
    return CertifiedSamples(
        Exhibit(subject.image, certificate),
        original,
        tuple(samples),
        sampling.predict_n,
        sampling.alpha,
        subject.title,
    )


def _predict(
    classifier: SmoothedClassifier,
    subject: Subject,
    shifts: NDArray[np.float64],
    sampling: Sampling,
    progress: _Progress,
) -> list[Sample]:
    params = torch.from_numpy(shifts)
    deformed = deform(subject.image, classifier.deformation, params, classifier.padding)
    samples = []
    for shift, (image, field) in zip(shifts, deformed, strict=True):
        prediction = classifier.predict(
            subject.image,
            sampling.predict_n,
            sampling.alpha,
            sampling.seed,
            index=subject.index,
            shift=shift.tolist(),
        )
        samples.append(Sample(shift, image, prediction, reach_px(field)))
        progress.add(sampling.predict_n)
    return samples


def _check(subject: Subject, classifier: SmoothedClassifier) -> None:
    """Raise unless the image's certificate, if it has one, can be this classifier's."""
    check_images("the image", subject.image, rank=3)
    check_seed("index", subject.index)
    certificate = subject.certificate
    if certificate is None:
        return
    Exhibit(subject.image, certificate).check_deformation(classifier.deformation)
    classes = len(certificate.counts.estimation)
    pairs: list[tuple[str, object, object]] = [
        ("the noise of the classifier", classifier.noise, certificate.law),
        ("num_classes", classifier.num_classes, classes),
    ]
    for name, own, certified in pairs:
        if own != certified:
            raise InputError(name, own, f"must be the certificate's, {certified}", "match the two")


Kind = Literal["certified", "fields", "families"]
MOST_ROWS = 8


@dataclass(frozen=True)
class Request:
    """Which images, of which model, drawn how.

    Images are `files`, or those numbered `images` in the data set; without either, the first
    certified ones of a run or the first of the data set.
    """

    kind: Kind
    out: Path
    model: ModelOptions
    data: DataOptions
    smoothing: SmoothingOptions
    sampling: Sampling
    files: tuple[Path, ...] = ()
    run: Path | None = None
    images: tuple[int, ...] = ()


def draw(request: Request, console: Console) -> None:
    """Draw what is asked into `request.out`."""
    check_figure_path(request.out)  # before sampling, not after it
    known: dict[int, Result] = {}
    loaded = None
    if request.run is not None:
        run = read_run(request.run)
        model, smoothing = options_of(request.run, request.model, request.smoothing)
        own = not request.data.data
        data = options_from_run(request.run)[1] if own else request.data
        request = dataclasses.replace(request, model=model, smoothing=smoothing, data=data)
        loaded = model.load()
        check_same_model(run.config, loaded, smoothing)
        names = loaded.class_names or class_names_of(run.config)
        loaded = dataclasses.replace(loaded, class_names=names)
        if own:  # certificates speak of the run's own images
            known = {result.index: result for result in run.results}
    elif request.model.model:
        loaded = request.model.load()
    subjects = _subjects(request, known, loaded)
    if request.kind == "certified":
        _draw_certified(request, subjects, loaded, console)
        return
    if len(subjects) > 1:
        raise InputError(
            "the images", f"{len(subjects)}", f"must be one for {request.kind}", "name one"
        )
    (subject,) = subjects
    padding, seed = request.smoothing.padding, request.sampling.seed
    if request.kind == "fields":
        rows = field_rows(size_of(subject.image), seed=seed)
        draw_fields(subject.image, rows, request.out, padding=padding)
    elif loaded is None:
        columns = request.sampling.columns
        draw_growth(subject.image, request.out, columns=columns, seed=seed, padding=padding)
    else:
        _draw_families(request, subject, loaded, console)


def _draw_certified(
    request: Request, subjects: Sequence[Subject], loaded: LoadedModel | None, console: Console
) -> None:
    if loaded is None or not request.smoothing.deformation or not request.smoothing.noise:
        raise InputError(
            "the model, the deformation or the noise",
            "missing",
            "is needed for certified samples",
            "give --run, or --model, --deformation and --noise",
        )
    classifier = smooth(loaded, request.model, request.smoothing, subjects[0].image)

    def sample(report: Report) -> list[CertifiedSamples]:
        return exhibit(classifier, subjects, request.sampling, report)

    draw_samples(_watched(console, sample), request.out, names=loaded.class_names)


def _draw_families(
    request: Request, subject: Subject, loaded: LoadedModel, console: Console
) -> None:
    # Any deformation and noise will do to try the model and to find its classes and batch size.
    some = SmoothingOptions("translation", "gaussian:0.1", request.smoothing.padding)
    tried = smooth(loaded, request.model, some, subject.image)

    def smoothed(deformation: Deformation, noise: NoiseLaw) -> SmoothedClassifier:
        return SmoothedClassifier(
            tried.model,
            deformation,
            noise,
            tried.num_classes,
            padding=tried.padding,
            batch_size=tried.batch_size,
            device=tried.device,
        )

    alone = dataclasses.replace(subject, certificate=None)

    def sample(report: Report) -> list[CertifiedSamples]:
        return exhibit_families(smoothed, alone, request.sampling, report=report)

    draw_rows(_watched(console, sample), request.out, names=loaded.class_names)


def _watched(
    console: Console, sample: Callable[[Report], list[CertifiedSamples]]
) -> list[CertifiedSamples]:
    with step(console, "sampling", 100) as advance:
        return sample(lambda done, total: advance(100 * done / total, f"{done:,} samples"))


def _subjects(
    request: Request, known: dict[int, Result], loaded: LoadedModel | None
) -> list[Subject]:
    preparation = request.model.preparation(Preparation() if loaded is None else loaded.preparation)
    if request.files:
        return [
            Subject(torch.from_numpy(load_image(file, preparation)), title=file.name)
            for file in request.files
        ]
    if not request.data.data:
        raise InputError("the image", "missing", "is needed", "name a file, --run or --data")
    names = None if loaded is None else loaded.class_names
    images = request.data.load(preparation, None, names)
    wanted = request.images or _first(known, request.kind)
    return [_subject(images, index, known.get(index)) for index in wanted]


def _first(known: dict[int, Result], kind: Kind) -> tuple[int, ...]:
    """The first certified image of each of a few classes, or the first image."""
    by_label: dict[int, int] = {}
    for index, result in known.items():
        if result.correct:
            by_label.setdefault(result.label, index)
    several = tuple(sorted(by_label.values())[:MOST_ROWS]) or (0,)
    return several if kind == "certified" else several[:1]


def _subject(images: ImageSet, index: int, result: Result | None) -> Subject:
    if not 0 <= index < len(images):
        raise InputError(
            "the image", index, f"must lie in [0, {len(images) - 1}]", "choose another"
        )
    image = torch.from_numpy(images[index][0])
    if result is not None and result.pixels != tensor_digest(image):
        raise InputError(
            f"image {index}", "not the one certified", "must be unchanged", "restore the data"
        )
    certificate = None if result is None else result.certificate
    return Subject(image, index, images.source(index), certificate)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=Word("certified", "fields", "families"),
    default="certified",
    show_default=True,
    help="Samples from certified sets; deformed images beside their vector fields; every family.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("gallery.png"),
    show_default=True,
    help="A .png, .svg or .pdf file.",
)
@run_option
@model_options(required=False)
@data_options(required=False)
@smoothing_options(required=False)
@click.option("--images", "--pictures", "images", help="Numbers in the dataset, e.g. 0,5,17.")
@click.option("--columns", default=8, show_default=True, help="Deformations in a row.")
@click.option("--predict-n", default=100, show_default=True, help="Samples of each prediction.")
@sampling_options(n=1000)
def gallery(
    files: tuple[Path, ...],
    kind: str,
    out: Path,
    run: Path | None,
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    images: str | None,
    columns: int,
    predict_n: int,
    sampling: SamplingOptions,
) -> None:
    """Draw images under deformations that provably leave their label alone.

    A model folder that deformrs train wrote brings its test images, deformation and noise.

    \b
    Examples:
      deformrs gallery --run runs/quickstart --out certified.png
      deformrs gallery --kind fields --data digits --images 3 --out fields.png
      deformrs gallery --kind families --model runs/quickstart --data digits --out families.png
    """
    from rich.console import Console

    from deformrs.cli.defaults import find_trained

    trained = find_trained(model.model, model.weights) if run is None else None
    if trained is not None and not files:
        data = trained.data_for(data)
    if trained is not None and kind == "certified":
        smoothing = trained.smoothing_for(
            smoothing, padding_given=is_typed("padding"), trust_code=model.trust_code
        )
    request = Request(
        kind=kind,  # type: ignore[arg-type]
        out=out,
        model=model,
        data=data,
        smoothing=smoothing,
        sampling=Sampling(
            columns, sampling.n, sampling.n0, sampling.alpha, sampling.seed, predict_n
        ),
        files=files,
        run=run,
        images=integers("--images", images),
    )
    draw(request, Console(highlight=False))
    click.echo(f"written: {out}")
