"""Count the certified images whose prediction changes if they are deformed before they arrive.

    python benchmarks/arrival.py                                   # digits, rotated by 30 degrees
    python benchmarks/arrival.py --model runs/shifts --data cifar10 --deformation translation \\
        --noise uniform:0.6 --by 5px --max 1000 --out results/benchmarks/h200.json

A certificate covers deformations of the stored image, whose pixels are read at other points. Here
the deformed image is what is stored: interpolated, cropped to its frame and rounded to bytes, as a
camera would have stored it. The certificate says nothing about its prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import torch
from rich.console import Console
from torch import Tensor

from deformrs import SamplingPlan, SmoothedClassifier, Stopping
from deformrs.cli.throughput import machine
from deformrs.config import Config
from deformrs.geometry import size_of, warp
from deformrs.plan import fresh_seed
from deformrs.randomness import Stage
from deformrs.statistics import sign_test
from deformrs.stopping import parse_radius
from record import Record
from subject import Options, load_subject, subject_options

ALPHA, TOGETHER = 0.001, 50


def deformed(classifier: SmoothedClassifier, images: Tensor, shift: list[float]) -> Tensor:
    """Return images as they are stored after a deformation: [k, c, h, w]."""
    size = size_of(images)
    field = classifier.deformation.field(torch.tensor([shift]), size)
    stored = warp(images, field.expand(len(images), -1, -1, -1), classifier.padding)
    return (255 * stored).round() / 255


def directions(dim: int, radius: float) -> Iterator[list[float]]:
    """Yield the shifts of that length along each parameter, both ways."""
    for axis in range(dim):
        for value in (radius, -radius):
            yield [value if place == axis else 0.0 for place in range(dim)]


def answers(
    classifier: SmoothedClassifier, images: Tensor, indices: list[int], n: int, seed: int
) -> list[int | None]:
    """Return the smoothed prediction for each image; None where it abstains."""
    found: list[int | None] = []
    rows = classifier.count_batch([*images], indices, n, Stage.PREDICT, seed=seed)
    for counts in rows:
        second, first = sorted(range(len(counts)), key=counts.__getitem__)[-2:]
        certain = sign_test(counts[first], counts[second]) <= ALPHA
        found.append(first if certain else None)
    return found


def count_changes(
    classifier: SmoothedClassifier, images: Tensor, labels: list[int], by: str, n: int
) -> Config:
    """Return how many images are certified, and how many of them change when they arrive deformed.

    images: [k, c, h, w]. An image counts once, if it changes in any direction.
    """
    space = classifier.deformation.space(size_of(images))
    radius, seed = parse_radius(by, space), fresh_seed()
    plan = SamplingPlan(n=100_000, seed=seed, stopping=Stopping(radii=(by,)))
    certified = changed = abstained = stored_holds = 0
    for start in range(0, len(images), TOGETHER):
        places = range(start, min(start + TOGETHER, len(images)))
        found = classifier.certify_batch(images[places.start : places.stop], places, plan)
        held = [
            place
            for place, certificate in zip(places, found, strict=True)
            if certificate.prediction == labels[place] and certificate.radius >= radius
        ]
        if not held:
            continue
        own = [labels[place] for place in held]
        other, unsure = [False] * len(held), [False] * len(held)
        for shift in directions(space.dim, radius):
            arrived = deformed(classifier, images[held], shift)
            for k, answer in enumerate(answers(classifier, arrived, held, n, seed)):
                other[k] |= answer not in (own[k], None)
                unsure[k] |= answer is None
            rows = classifier.count_batch(
                [*images[held]], held, n, Stage.PREDICT, seed=seed, shift=shift
            )
            stored_holds += sum(
                max(range(len(c)), key=c.__getitem__) == k for c, k in zip(rows, own, strict=True)
            )
        certified += len(held)
        changed += sum(other)
        abstained += sum(a and not b for a, b in zip(unsure, other, strict=True))
    return {
        "by": by,
        "n": n,
        "images": len(images),
        "certified": certified,
        "changed_on_arrival": changed,
        "abstained_on_arrival": abstained,
        "shifts_of_stored_images": certified * 2 * space.dim,
        "shifts_with_the_same_answer": stored_holds,
    }


@click.command()
@subject_options
@click.option("--by", default="30deg", show_default=True, help="Certified, and deformed by this.")
@click.option("--n", default=1000, show_default=True, help="Samples of a prediction.")
@click.option("--max", "most", default=200, show_default=True, help="Images, spread over the data.")
@click.option("--out", type=click.Path(path_type=Path), help="The record to extend.")
def main(options: Options, by: str, n: int, most: int, out: Path | None) -> None:
    """Count the certified images that change when they are deformed before they arrive."""
    subject = load_subject(options)
    stride = max(1, len(subject.images) // most)
    rows = range(0, stride * min(most, len(subject.images)), stride)
    images = torch.stack([subject.image(row) for row in rows])
    labels = [int(subject.images[row][1]) for row in rows]
    entry = subject.names | count_changes(subject.classifier, images, labels, by, n)
    Record(machine(subject.device), out).add("arrivals", entry)
    Console().print(entry)


if __name__ == "__main__":
    main()
