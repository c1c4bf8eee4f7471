"""What certification costs as the work grows: samples, image sides, images."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial

import torch

from deformrs.benchmarks.classifiers import classifier_of
from deformrs.benchmarks.networks import new_network, some_images
from deformrs.benchmarks.plan import Case, Execution, Size
from deformrs.benchmarks.quiet import quietly
from deformrs.benchmarks.samples import N0, samples_of
from deformrs.benchmarks.subject import Subject
from deformrs.benchmarks.timing import medians_in_turns, peak_bytes
from deformrs.config import Config
from deformrs.dataset import certify_dataset
from deformrs.runs import Result
from deformrs.smoothing import SmoothedClassifier
from deformrs.stopping import Stopping

FAMILY = "rotation"


def measure_cost(size: Size, how: Execution) -> Iterator[tuple[str, list[Config]]]:
    """The curves that need no trained network, each by its name."""
    with quietly(compiling=how.compiled != "no"):
        yield "time_against_n", _against_n(size, how)
        yield "memory_against_n", _memory(size, how)
        yield "time_against_side", [_at_side(side, size, how) for side in size.cost_sides]


def measure_images(size: Size, subject: Subject, radius: str) -> list[Config]:
    """Time against the number of images, each asked whether one radius holds."""
    points: list[Config] = []
    counts = sorted({min(count, len(subject.images)) for count in size.cost_images})

    def decide(count: int) -> list[Result]:
        return list(
            certify_dataset(
                subject.classifier,
                subject.images,
                n=size.fixed_n,
                n0=N0,
                max=count,
                stopping=Stopping(radii=(radius,)),
            )
        )

    decide(counts[0])
    for count in counts:
        began = time.perf_counter()
        results = decide(count)  # which leaves nothing on the device undone
        seconds = time.perf_counter() - began
        points.append(
            {
                "model": subject.model,
                "radius": radius,
                "pictures": count,
                "seconds": round(seconds, 4),
                "samples": samples_of(results),
            }
        )
    return points


def _against_n(size: Size, how: Execution) -> list[Config]:
    case = size.cost_case
    classifier, image = _ready(case, how)
    device = torch.device(how.device)
    works = [partial(classifier.certify, image, n, N0) for n in size.cost_n]
    works[0]()
    medians = medians_in_turns(works, how.repeats, device)
    return [
        _about(case) | {"n": n, "seconds": round(seconds, 5)}
        for n, seconds in zip(size.cost_n, medians, strict=True)
    ]


def _memory(size: Size, how: Execution) -> list[Config]:
    case = size.cost_case
    classifier, image = _ready(case, how)
    device = torch.device(how.device)
    # On a CPU the first go at the most work leaves the allocator some megabytes larger for good.
    classifier.certify(image, max(size.cost_n), N0)
    return [
        _about(case)
        | {
            "n": n,
            "peak_memory_bytes": peak_bytes(partial(classifier.certify, image, n, N0), device),
        }
        for n in size.cost_n
    ]


def _at_side(side: int, size: Size, how: Execution) -> Config:
    case = size.cost_case
    # As many pixels in a batch whatever the side, so that all fit the memory alike.
    fitting = case.batch_size * case.side**2 // side**2
    batch_size = min(case.batch_size, 1 << max(0, fitting.bit_length() - 1))
    case = dataclasses.replace(case, side=side, batch_size=batch_size)
    classifier, image = _ready(case, how)
    classifier.certify(image, batch_size, N0)
    (seconds,) = medians_in_turns(
        [partial(classifier.certify, image, case.n, N0)], how.repeats, torch.device(how.device)
    )
    return _about(case) | {"n": case.n, "side": side, "seconds": round(seconds, 5)}


def _ready(case: Case, how: Execution) -> tuple[SmoothedClassifier, torch.Tensor]:
    """The classifier, compiled if asked, and an image on the device."""
    network = new_network(case.network, case.channels, case.side)
    classifier = classifier_of(network, case, FAMILY, how)
    image = some_images(1, case.channels, case.side)[0].to(how.device)
    classifier.warm_up(image)
    return classifier, image


def _about(case: Case) -> Config:
    return {"model": case.network, "family": FAMILY, "batch_size": case.batch_size}
