"""A tour in two minutes: train a small network on digits, certify it, look at the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from deformrs import __version__
from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.config import Config
from deformrs.data import load_digits
from deformrs.data.digits import TEST
from deformrs.deformations import Rotation
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.noise import Uniform
from deformrs.progress import step
from deformrs.report.curve import draw_curve
from deformrs.report.gallery import Exhibit, draw_gallery
from deformrs.report.tables import Row, accuracy_rows, average_radius, markdown
from deformrs.rounding import format_down, percent_down
from deformrs.runs import Result, Run, write_atomically
from deformrs.smoothing import SmoothedClassifier
from deformrs.training import Step, train

RADII = {f"{degrees}°": math.radians(degrees) for degrees in (10, 30, 60)}
NOISE = Uniform(math.pi / 2)


@dataclass(frozen=True)
class Settings:
    """What the tour does. Equal settings give equal certificates on one machine."""

    out: Path = Path("runs/quickstart")
    digits: int = 200
    epochs: int = 30
    n: int = 2000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        # Before training, not after it.
        for name in ("digits", "epochs", "n", "n0"):
            check_whole(name, getattr(self, name), least=1)
        if self.digits > TEST:
            raise InputError("digits", self.digits, f"must lie in [1, {TEST}]", f"e.g. {TEST}")
        check_alpha(self.alpha)
        check_seed("seed", self.seed)


@dataclass(frozen=True)
class Tour:
    """What came of it."""

    rows: list[Row]
    average_radius: float
    files: dict[str, Path]


def run(settings: Settings, console: Console) -> Tour:
    """Train, certify, and write certificates, curve, table and gallery into `settings.out`."""
    images, labels = load_digits("test")
    deformation = Rotation()
    about: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "command": "quickstart",
        "deformation": deformation.to_config(),
        "epochs": settings.epochs,
        "n": settings.n,
        "n0": settings.n0,
        "seed": settings.seed,
    }
    with Run.open(settings.out, NOISE, settings.alpha, "clopper_pearson", about) as run:
        _certify(run, settings, images, labels, console)
        results = run.results[: settings.digits]

    files = {
        name: settings.out / name
        for name in ("certificates.jsonl", "table.md", "curve.png", "gallery.png")
    }
    write_atomically(files["table.md"], markdown(results, RADII))
    draw_curve(results, files["curve.png"])
    exhibits = [
        Exhibit(images[result.index], result.certificate) for result in _one_of_each_class(results)
    ]
    if exhibits:
        draw_gallery(exhibits, deformation, files["gallery.png"])
    else:
        files.pop("gallery.png").unlink(missing_ok=True)
    return Tour(accuracy_rows(results, RADII), average_radius(results), files)


def _certify(
    run: Run, settings: Settings, images: Tensor, labels: Tensor, console: Console
) -> None:
    """Certify the digits that have no certificate yet, with a network trained for it."""
    missing = [index for index in range(settings.digits) if index not in run.done]
    if not missing:
        return
    classifier = SmoothedClassifier(_trained(settings, console), Rotation(), NOISE, 10)
    with step(console, "certifying digits", settings.digits) as advance:
        for index in missing:
            certificate = classifier.certify(
                images[index],
                settings.n,
                settings.n0,
                settings.alpha,
                settings.seed,
                index=index,
            )
            run.add(Result(index, int(labels[index]), certificate))
            held = sum(result.holds(RADII["30°"]) for result in run.results)
            advance(index + 1, f"{percent_down(held, len(run.results))} % certified at 30°")


def _trained(settings: Settings, console: Console) -> SmallCNN:
    images, labels = load_digits("train")
    model = SmallCNN(width=32, seed=settings.seed)
    batches = settings.epochs * -(-len(images) // 128)
    with step(console, "training a network", batches) as advance:

        def show(now: Step) -> None:
            share = f"{format_down(100 * now.accuracy, 1)} % right"
            advance(now.done, f"loss {now.loss:.3f}, {share} under noise")

        train(
            model,
            images,
            labels,
            Rotation(),
            NOISE,
            epochs=settings.epochs,
            seed=settings.seed,
            report=show,
        )
    return model


def _one_of_each_class(results: list[Result]) -> list[Result]:
    """The first certified picture of every class, for the gallery."""
    first: dict[int, Result] = {}
    for result in results:
        if result.correct:
            first.setdefault(result.label, result)
    return [first[label] for label in sorted(first)]
