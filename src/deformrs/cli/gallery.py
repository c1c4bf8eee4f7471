"""`deformrs gallery`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_integer
from deformrs.cli.defaults import find_trained, options_of
from deformrs.cli.jobs import load_model_of_run, smooth_as
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
from deformrs.cli.predict import image_files
from deformrs.cli.progress import step
from deformrs.cli.terminal import echo
from deformrs.config import Config
from deformrs.data import ImageSet, load_image
from deformrs.data.loading import certified_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.fingerprints import tensor_digest
from deformrs.geometry import Padding, size_of
from deformrs.models import LoadedModel
from deformrs.report.gallery import (
    MOST_ROWS,
    Exhibit,
    ExhibitSamples,
    changed_image,
    check_animation_path,
    check_figure_path,
    default_families,
    default_noise,
    draw_fields,
    draw_growth,
    draw_samples,
    draw_turning,
    family_title,
    one_per_class,
    sample_exhibit,
)
from deformrs.runs import Result, StoredRun, read_config, read_run
from deformrs.sampling import Progress
from deformrs.smoothing import SmoothedClassifier
from deformrs.stopping import Stopping
from deformrs.units import Size

CERTIFIED = ("certified", "turning")
"""The kinds that show certificates."""

LARGEST = 100
"""Rows, and columns, that a figure has room for, whatever their size."""


@dataclass(frozen=True)
class Subject:
    """An image to draw, its number in its dataset, and its certificate if a run has it."""

    image: Tensor
    title: str
    index: int = 0
    certificate: Certificate | None = None

    @property
    def size(self) -> Size:
        return size_of(self.image)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=Word("certified", "fields", "families", "turning"),
    default="certified",
    show_default=True,
    help="Samples from certified sets; deformed images and their vector fields; every family; an "
    "animation of an image that is turned.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A .png, .svg or .pdf file; .gif or .webp of an animation.  [gallery.png in the run, or "
    "here; fields.png, families.png, turning.webp]",
)
@run_option
@model_options(required=False)
@data_options(required=False)
@smoothing_options(required=False)
@click.option("--images", "--pictures", "images", help="Numbers in the dataset, e.g. 0,5,17.")
@click.option("--columns", default=8, show_default=True, help="Deformations per image.")
@click.option("--with-fields", is_flag=True, help="Draw the vector field of each deformation too.")
@click.option(
    "--predict-n",
    type=int,
    help="Most samples of a prediction; it stops once decided, mostly after 30.  [10000, or those "
    "of the certificate if more]",
)
@sampling_options(n=1000)
def gallery(
    files: tuple[Path, ...],
    kind: str,
    out: Path | None,
    run: Path | None,
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    images: str | None,
    columns: int,
    with_fields: bool,
    predict_n: int | None,
    sampling: SamplingOptions,
) -> None:
    """Draw images under deformations that their certificates cover.

    Images are files or numbers in a dataset; by default the first certified ones of a run, or the
    first of the dataset. A model folder written by deformrs train brings its test images,
    deformation and noise. Images that a run has no certificate of are certified as that run was;
    --n, --n0 and --alpha win. Among several files, those that are not images are skipped.

    \b
    Examples:
      deformrs gallery --run runs/quickstart
      deformrs gallery --kind fields --data digits --images 3 --out fields.png
      deformrs gallery --kind families --model runs/quickstart --data digits --out families.png
      deformrs gallery --kind turning --run runs/quickstart --out turning.webp
    """
    check_integer("columns", columns, least=1)
    if columns > LARGEST:
        raise InputError("columns", columns, f"must be at most {LARGEST}", "e.g. 8")
    if predict_n is not None:
        check_integer("predict-n", predict_n, least=1)
    numbers = integers("--images", images)
    files = image_files(files)
    results: dict[int, Result] = {}
    stopping = None
    stored: StoredRun | None = None
    if run is not None:
        model, smoothing = options_of(run, model, smoothing)
        if kind in CERTIFIED:
            sampling, stopping = _as_in_run(read_config(run), sampling)
        if not data.data:  # certificates are about the run's own images
            stored = read_run(run, alpha=sampling.alpha if kind in CERTIFIED else None)
            results = {result.index: result for result in stored.results}
    elif (trained := find_trained(model.model, model.weights)) is not None:
        if not files:
            data = trained.data_for(data)
        if kind in CERTIFIED:
            smoothing = trained.smoothing_for(
                smoothing, padding_given=is_typed("padding"), trust_code=model.trust_code
            )
    if out is None:
        names_of_kinds = {"certified": "gallery.png", "turning": "turning.webp"}
        out = (run or Path()) / names_of_kinds.get(kind, f"{kind}.png")
    check_path = check_animation_path if kind == "turning" else check_figure_path
    check_path(out)  # before sampling, not after it
    loaded = None
    if model.model:
        loaded = model.load() if run is None else load_model_of_run(run, model)
    preparation = model.preparation(Preparation()) if loaded is None else loaded.preparation
    names = None if loaded is None else loaded.class_names

    if len(files or numbers) > LARGEST:
        raise InputError(
            "the number of images",
            len(files or numbers),
            f"must be at most {LARGEST}, one row each",
            "name fewer at a time",
        )
    if files:
        subjects = [
            Subject(torch.from_numpy(load_image(file, preparation)), file.name) for file in files
        ]
    elif stored is not None or data.data:
        dataset = data.load(preparation, None, names) if stored is None else certified_data(stored)
        if not numbers:
            certified = sorted(result.index for result in one_per_class(results.values()))
            numbers = tuple(certified[: MOST_ROWS if kind == "certified" else 1]) or (0,)
        subjects = [_subject(dataset, index, results.get(index)) for index in numbers]
    else:
        raise InputError("the image", "missing", "is needed", "name a file, --run or --data")

    if kind != "certified" and len(subjects) > 1:
        raise InputError("the images", len(subjects), f"must be one for {kind}", "name one")
    image, padding, seed = subjects[0].image, smoothing.padding, sampling.seed or 0
    smoothed = smoothing.deformation and smoothing.noise
    if kind == "fields":
        draw_fields(image, out, seed=seed, padding=padding)
    elif kind == "families" and loaded is None:
        draw_growth(image, out, columns=columns, seed=seed, padding=padding)
    elif loaded is None or (kind in CERTIFIED and not smoothed):
        raise InputError(
            "the model, the deformation or the noise",
            "missing",
            "is needed for certified samples",
            "give --run, or --model, --deformation and --noise",
        )
    else:
        if kind == "families":
            pairs = _families(loaded, model, padding, subjects[0])
        else:
            # Noise in pixels is another law on an image of another size.
            classifiers = {
                subject.size: smooth_as(loaded, model, smoothing, subject.image)
                for subject in (subjects if "px" in smoothing.noise else subjects[:1])
            }
            pairs = [
                (classifiers.get(subject.size, classifiers[subjects[0].size]), subject)
                for subject in subjects
            ]
        console = Console(highlight=False)
        if kind == "turning":
            _turn(*pairs[0], out, names, sampling, stopping)
            echo(f"written: {out}")
            return
        rows = _sample(pairs, columns, predict_n, sampling, stopping, console)
        draw_samples(rows, out, names=names, fields=with_fields)
    echo(f"written: {out}")


def _turn(
    classifier: SmoothedClassifier,
    subject: Subject,
    out: Path,
    names: Sequence[str] | None,
    sampling: SamplingOptions,
    stopping: Stopping | None,
) -> None:
    """Animate an image, certified now unless a run has its certificate."""
    exhibit = Exhibit(
        subject.image, _certified(classifier, subject, sampling, stopping), subject.title
    )
    draw_turning(
        exhibit,
        classifier.deformation,
        out,
        answers=lambda images: classifier.classify(images, range(len(images))),
        names=names,
        padding=classifier.padding,
    )


def _certified(
    classifier: SmoothedClassifier,
    subject: Subject,
    sampling: SamplingOptions,
    stopping: Stopping | None,
    progress: Progress | None = None,
) -> Certificate:
    """Return the certificate that a run has of an image, or a new one."""
    return subject.certificate or classifier.certify(
        subject.image,
        sampling.n,
        sampling.n0,
        sampling.alpha,
        sampling.seed,
        index=subject.index,
        method=sampling.method or "auto",
        stopping=stopping,
        progress=progress,
    )


def _as_in_run(config: Config, given: SamplingOptions) -> tuple[SamplingOptions, Stopping | None]:
    """Return the sampling of a run, with what was given on the command line instead."""
    own: Any = config
    if not {"n", "n0"} <= config.keys():
        raise InputError("the run", "without n and n0", "must have them", "name another")
    stored = {name: own[name] for name in ("n", "n0", "alpha") if not is_typed(name)}
    stop = own.get("stopping")
    stopping = stop and Stopping.from_config(stop)
    # The bound of a run that stops early is for its own n.
    method = own["method"] if stopping is None else "auto"
    return dataclasses.replace(given, method=method, **stored), stopping


def _subject(dataset: ImageSet, index: int, result: Result | None) -> Subject:
    if not 0 <= index < len(dataset):
        raise InputError(
            "the image", index, f"must lie in [0, {len(dataset) - 1}]", "choose another"
        )
    image = torch.from_numpy(dataset[index][0])
    if result is not None and result.pixels != tensor_digest(image):
        raise changed_image(index)
    certificate = None if result is None else result.certificate
    return Subject(image, dataset.source(index), index, certificate)


def _families(
    loaded: LoadedModel, model: ModelOptions, padding: Padding, subject: Subject
) -> list[tuple[SmoothedClassifier, Subject]]:
    """Return the model smoothed over every family, and the image under the family's name."""
    # Any deformation and noise will do to check the model and find its classes and batch size.
    example = SmoothingOptions("translation", "gaussian:0.1", padding)
    some = smooth_as(loaded, model, example, subject.image)
    pairs = []
    for family in default_families():
        classifier = SmoothedClassifier(
            some.model,
            family,
            default_noise(family.space(size_of(subject.image))),
            some.num_classes,
            padding=padding,
            batch_size=some.batch_size,
            device=some.device,
        )
        pairs.append((classifier, Subject(subject.image, family_title(family), subject.index)))
    return pairs


def _sample(
    pairs: Sequence[tuple[SmoothedClassifier, Subject]],
    columns: int,
    predict_n: int | None,
    sampling: SamplingOptions,
    stopping: Stopping | None,
    console: Console,
) -> list[ExhibitSamples]:
    """Certify each image that has no certificate, and predict it all over its certified set."""
    rows: list[ExhibitSamples] = []
    samples = 0
    with step(console, "sampling, images", len(pairs)) as advance:

        def show(count: int) -> None:
            nonlocal samples
            samples += count
            advance(len(rows), f"{samples:,} samples")

        progress = Progress(sampled=show)
        for classifier, subject in pairs:
            certificate = _certified(classifier, subject, sampling, stopping, progress)
            row = sample_exhibit(
                classifier,
                Exhibit(subject.image, certificate, subject.title, subject.index),
                columns,
                n=predict_n,
                alpha=sampling.alpha,
                seed=sampling.seed,
                progress=progress,
            )
            rows.append(row)
            show(0)
    return rows
