"""Measure how time and memory grow with samples, image side and number of images.

python benchmarks/cost.py --out results/benchmarks/cpu.json
python benchmarks/plot.py results/benchmarks/cpu.json
"""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import torch
from torch import Tensor

from deformrs import SmoothedClassifier, Stopping, certify_dataset
from deformrs.cli.throughput import (
    N0,
    REPEATS,
    Case,
    machine,
    random_images,
    seconds_in_turns,
    smoothed_classifier,
)
from deformrs.config import Config
from deformrs.runs import Result
from record import Record
from samples import used
from subject import Options, Subject, load_subject, subject_options


@dataclass(frozen=True)
class Range:
    """The network, for rotations, and the values each curve is measured at.

    `limit` is the most samples an image may take while a radius is decided.
    """

    case: Case
    limit: int
    n: tuple[int, ...]
    sides: tuple[int, ...]
    images: tuple[int, ...]


SMALL = Range(
    Case("small_cnn", 28, 1, 256, 2048, 1, 0),
    1000,
    (512, 1024, 2048, 4096, 8192),
    (28, 32, 64),
    (10, 20, 40, 80, 160),
)
LARGE = Range(
    Case("resnet18", 32, 3, 8192, 20_480, 1, 0),
    100_000,
    (25_000, 50_000, 100_000, 200_000, 400_000),
    (28, 32, 64, 224),
    (100, 200, 500, 1000, 2000),
)


def time_against_n(values: Sequence[int], case: Case) -> list[Config]:
    """Return the seconds of one image for each number of samples."""
    classifier, image = _ready(case)
    works = [partial(classifier.certify, image, n, N0) for n in values]
    works[0]()
    return [
        _about(case) | {"n": n, "seconds": round(seconds, 5)}
        for n, seconds in zip(values, _medians(works, case), strict=True)
    ]


def memory_against_n(values: Sequence[int], case: Case) -> list[Config]:
    """Return the peak memory in bytes of one image for each number of samples."""
    classifier, image = _ready(case)
    # On a CPU the first use leaves the allocator some megabytes larger for good.
    classifier.certify(image, max(values), N0)
    return [
        _about(case)
        | {
            "n": n,
            "peak_memory_bytes": peak_bytes(partial(classifier.certify, image, n, N0), case.device),
        }
        for n in values
    ]


def time_against_side(values: Sequence[int], case: Case) -> list[Config]:
    """Return the seconds of one image for each image side."""
    points: list[Config] = []
    for side in values:
        # As many pixels per batch whatever the side, so that all fit the memory.
        fitting = case.batch_size * case.side**2 // side**2
        size = min(case.batch_size, 1 << max(0, fitting.bit_length() - 1))
        own = dataclasses.replace(case, side=side, batch_size=size)
        classifier, image = _ready(own)
        classifier.certify(image, size, N0)
        (seconds,) = _medians([partial(classifier.certify, image, own.n, N0)], own)
        points.append(_about(own) | {"n": own.n, "side": side, "seconds": round(seconds, 5)})
    return points


def time_against_images(
    values: Sequence[int], n: int, subject: Subject, radius: str
) -> list[Config]:
    """Return the seconds for each number of images, one radius decided."""

    def decide(count: int) -> list[Result]:
        stopping, images = Stopping(radii=(radius,)), subject.images
        return list(
            certify_dataset(subject.classifier, images, n=n, n0=N0, max=count, stopping=stopping)
        )

    points: list[Config] = []
    counts = sorted({min(count, len(subject.images)) for count in values})
    decide(counts[0])
    for count in counts:
        start = time.perf_counter()
        results = decide(count)
        points.append(
            {
                "model": subject.model,
                "radius": radius,
                "pictures": count,
                "seconds": round(time.perf_counter() - start, 4),
                "samples": sum(used(result) for result in results),
            }
        )
    return points


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return the most memory in use during some work.

    On a GPU what torch allocated; on a CPU the resident size of the process, as Linux counts it.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free but not returned would count
    Path("/proc/self/clear_refs").write_text("5")  # restarts the peak
    work()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _ready(case: Case) -> tuple[SmoothedClassifier, Tensor]:
    classifier = smoothed_classifier(case)
    image = random_images(1, case.channels, case.side)[0].to(case.device)
    classifier.warm_up(image)
    return classifier, image


def _medians(works: Sequence[Callable[[], object]], case: Case) -> list[float]:
    return [statistics.median(own) for own in seconds_in_turns(works, case.repeats, case.device)]


def _about(case: Case) -> Config:
    return {"model": case.network, "family": case.family, "batch_size": case.batch_size}


def measure(values: Range, subject: Subject, radius: str, record: Record) -> None:
    """Measure all curves, and add each to the record."""
    case = values.case
    for name, points in (
        ("time_against_images", time_against_images(values.images, values.limit, subject, radius)),
        ("time_against_n", time_against_n(values.n, case)),
        ("memory_against_n", memory_against_n(values.n, case)),
        ("time_against_side", time_against_side(values.sides, case)),
    ):
        record.add_curve(name, points)


@click.command()
@subject_options
@click.option("--radius", default="10deg", show_default=True, help="Decided for every image.")
@click.option("--repeats", default=REPEATS, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The record to extend.")
def main(options: Options, radius: str, repeats: int, out: Path) -> None:
    """Measure the cost curves: on a GPU with ResNet-18, on a CPU with a small network."""
    subject = load_subject(options)
    values = LARGE if subject.device.type == "cuda" else SMALL
    case = dataclasses.replace(
        values.case,
        device=subject.device,
        precision=subject.precision,
        compiled=options.compiled,
        repeats=repeats,
    )
    record = Record(machine(subject.device), out)
    measure(dataclasses.replace(values, case=case), subject, radius, record)


if __name__ == "__main__":
    main()
