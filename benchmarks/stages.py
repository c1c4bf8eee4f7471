"""Show where the time of certification goes: each stage alone, and the longest operations.

python benchmarks/stages.py resnet18 --family rotation --compile max-autotune
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import click
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from deformrs import SmoothedClassifier
from deformrs.cli.throughput import (
    FAMILIES,
    N0,
    Case,
    random_images,
    seconds,
    seconds_in_turns,
    select_cases,
    smoothed_classifier,
)
from deformrs.execution import Compiled, chosen_device
from deformrs.geometry import warp
from deformrs.models.inference import natural_precision
from deformrs.randomness import generator_for

BATCHES, OPERATIONS = 20, 12


@torch.inference_mode()
def stage_shares(classifier: SmoothedClassifier, image: Tensor, repeats: int) -> dict[str, float]:
    """Return the share of each stage of a batch, run alone and uncompiled."""
    size = (image.shape[-2], image.shape[-1])
    space = classifier.deformation.space(size)
    generator = generator_for(image.device, seed=0)
    params = classifier.noise.sample(classifier.batch_size, space, generator)
    images = warp(image, classifier.deformation.field(params, size), classifier.padding)
    scores = classifier.model(images)
    counts = torch.zeros(classifier.classes_for(image), dtype=torch.int64, device=image.device)

    def count() -> None:
        best, predictions = scores.max(dim=1)
        best.isfinite().all()
        counts.scatter_add_(0, predictions, torch.ones_like(predictions))

    stages = {
        "draw": lambda: classifier.noise.sample(classifier.batch_size, space, generator),
        "warp": lambda: warp(image, classifier.deformation.field(params, size), classifier.padding),
        "network": lambda: classifier.model(images),
        "count": count,
    }
    times = seconds_in_turns(list(stages.values()), max(5, repeats), image.device)
    medians = [statistics.median(own) for own in times]
    return {name: own / sum(medians) for name, own in zip(stages, medians, strict=True)}


def operation_seconds(
    classifier: SmoothedClassifier, image: Tensor, samples: int
) -> tuple[Counter[str], float]:
    """Return the seconds of each operation, and of the whole without the profiler."""
    # Above every level: the profiler's library reports when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    on_gpu = image.device.type == "cuda"
    classifier.warm_up(image)
    classifier.certify(image, samples, N0)
    whole = seconds(lambda: classifier.certify(image, samples, N0), image.device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiled:
        classifier.certify(image, samples, N0)
    spent: Counter[str] = Counter()
    for event in profiled.key_averages():
        # On a GPU, launches on the CPU carry the time of their kernels once more.
        if not on_gpu:
            spent[event.key] += event.self_cpu_time_total / 1e6
        elif event.device_type.name == "CUDA":
            spent[event.key] += event.self_device_time_total / 1e6
    return spent, whole


def report(case: Case) -> Sequence[str]:
    """Return the lines that say where the time of a case goes."""
    classifier = smoothed_classifier(case)
    image = random_images(1, case.channels, case.side)[0].to(case.device)
    stages = stage_shares(classifier, image, case.repeats)
    samples = max(1, min(case.n * case.images, BATCHES * case.batch_size))
    spent, whole = operation_seconds(classifier, image, samples)
    total = sum(spent.values())
    lines = [f"{name}: {100 * share:.1f} % of a batch" for name, share in stages.items()]
    if case.device.type == "cuda":
        lines.append(f"the device computes {100 * min(1.0, total / whole):.1f} % of the time")
    operations = spent.most_common(OPERATIONS)
    return lines + [f"{100 * own / total:6.2f} %  {name[:100]}" for name, own in operations]


@click.command()
@click.argument("network")
@click.option("--family", type=click.Choice(list(FAMILIES)), default="rotation", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--compile",
    "compiled",
    type=click.Choice(get_args(Compiled)),
    default="no",
    show_default=True,
)
def main(network: str, family: str, device: str, compiled: Compiled) -> None:
    """Show where the time goes for NETWORK, one of those that `deformrs bench` measures."""
    place = chosen_device(device)
    (case,) = select_cases(
        place, natural_precision(place), compiled, networks=[network], families=[family]
    )
    print("\n".join(report(case)))


if __name__ == "__main__":
    main()
