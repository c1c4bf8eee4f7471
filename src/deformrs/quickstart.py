"""A tour in two minutes: train a small network on digits, certify it, look at the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deformrs import __version__
from deformrs.data import load_digits
from deformrs.deformations import Rotation
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.noise import Uniform
from deformrs.progress import step
from deformrs.report.curve import draw_curve
from deformrs.report.gallery import Exhibit, draw_gallery
from deformrs.report.tables import Row, accuracy_rows, average_radius, markdown
from deformrs.rounding import percent_down
from deformrs.runs import Result, save_run, write_atomically
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


@dataclass(frozen=True)
class Tour:
    """What came of it."""

    rows: list[Row]
    average_radius: float
    files: dict[str, Path]


def run(settings: Settings, console: Console) -> Tour:
    """Train, certify, and write certificates, curve, table and gallery into `settings.out`."""
    images, labels = load_digits("test")
    if not 1 <= settings.digits <= len(images):
        raise InputError(
            "digits", settings.digits, f"must lie in [1, {len(images)}]", "there are no more"
        )
    deformation = Rotation()
    # A folder that cannot be written should say so before the work is done.
    settings.out.mkdir(parents=True, exist_ok=True)
    classifier = SmoothedClassifier(_trained(settings, console), deformation, NOISE, 10)

    results: list[Result] = []
    with step(console, "certifying digits", settings.digits) as advance:
        for index in range(settings.digits):
            certificate = classifier.certify(
                images[index],
                settings.n,
                settings.n0,
                settings.alpha,
                settings.seed,
                index=index,
            )
            results.append(Result(index, int(labels[index]), certificate))
            held = sum(result.holds(RADII["30°"]) for result in results)
            advance(index + 1, f"{percent_down(held, len(results))} % certified at 30°")

    files = {
        name: settings.out / name
        for name in ("certificates.jsonl", "table.md", "curve.png", "gallery.png")
    }
    save_run(
        settings.out,
        {
            "version": __version__,
            "command": "quickstart",
            "deformation": deformation.to_config(),
            "epochs": settings.epochs,
            "seed": settings.seed,
        },
        results,
    )
    write_atomically(files["table.md"], markdown(results, RADII))
    draw_curve(results, files["curve.png"])
    exhibits = _one_of_each_class(results)
    if exhibits:
        draw_gallery(
            [Exhibit(images[result.index], result.certificate) for result in exhibits],
            deformation,
            files["gallery.png"],
        )
    else:
        del files["gallery.png"]
    return Tour(accuracy_rows(results, RADII), average_radius(results), files)


def _trained(settings: Settings, console: Console) -> SmallCNN:
    images, labels = load_digits("train")
    model = SmallCNN(width=32, seed=settings.seed)
    batches = settings.epochs * -(-len(images) // 128)
    with step(console, "training a network", batches) as advance:

        def show(now: Step) -> None:
            share = f"{100 * now.accuracy:.1f} % right"
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
