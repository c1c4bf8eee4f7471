"""What `deformrs gallery` draws: certified samples, vector fields, all families."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from deformrs.data import PictureSet, load_picture
from deformrs.deformations import Deformation
from deformrs.engines.identity import digest_of
from deformrs.errors import InputError
from deformrs.geometry import size_of
from deformrs.models import LoadedModel
from deformrs.noise import NoiseLaw
from deformrs.progress import step
from deformrs.report.gallery.fields import draw_fields, field_rows
from deformrs.report.gallery.growth import draw_growth
from deformrs.report.gallery.samples import CertifiedSamples, draw_rows, draw_samples
from deformrs.report.gallery.sheet import check_figure_path
from deformrs.runs import Result, read_run
from deformrs.smoothing import SmoothedClassifier
from deformrs.tasks.exhibition import Report, Sampling, Subject, exhibit, exhibit_families
from deformrs.tasks.jobs import check_same_model, smooth
from deformrs.tasks.options import (
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    class_names_of,
    options_from_run,
    options_of,
)

Kind = Literal["certified", "fields", "families"]
MOST_ROWS = 8


@dataclass(frozen=True)
class Request:
    """Which pictures, of which model, drawn how.

    Pictures are `files`, or those numbered `pictures` in the data set; without either, the first
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
    pictures: tuple[int, ...] = ()


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
        if own:  # certificates speak of the run's own pictures
            known = {result.index: result for result in run.results}
    elif request.model.model:
        loaded = request.model.load()
    subjects = _subjects(request, known, loaded)
    if request.kind == "certified":
        _draw_certified(request, subjects, loaded, console)
        return
    if len(subjects) > 1:
        raise InputError(
            "the pictures", f"{len(subjects)}", f"must be one for {request.kind}", "name one"
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
    preparation = request.model.prepared(None if loaded is None else loaded.preparation)
    if request.files:
        return [
            Subject(torch.from_numpy(load_picture(file, preparation)), title=file.name)
            for file in request.files
        ]
    if not request.data.data:
        raise InputError("the picture", "missing", "is needed", "name a file, --run or --data")
    names = None if loaded is None else loaded.class_names
    pictures = request.data.load(preparation, None, names)
    wanted = request.pictures or _first(known, request.kind)
    return [_subject(pictures, index, known.get(index)) for index in wanted]


def _first(known: dict[int, Result], kind: Kind) -> tuple[int, ...]:
    """The first certified picture of each of a few classes, or the first picture."""
    by_label: dict[int, int] = {}
    for index, result in known.items():
        if result.correct:
            by_label.setdefault(result.label, index)
    several = tuple(sorted(by_label.values())[:MOST_ROWS]) or (0,)
    return several if kind == "certified" else several[:1]


def _subject(pictures: PictureSet, index: int, result: Result | None) -> Subject:
    if not 0 <= index < len(pictures):
        raise InputError(
            "the picture", index, f"must lie in [0, {len(pictures) - 1}]", "choose another"
        )
    image = torch.from_numpy(pictures[index][0])
    if result is not None and result.pixels != digest_of(image):
        raise InputError(
            f"picture {index}", "not the one certified", "must be unchanged", "restore the data"
        )
    certificate = None if result is None else result.certificate
    return Subject(image, index, pictures.source(index), certificate)
