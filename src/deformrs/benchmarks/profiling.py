"""Where the time goes: each stage alone, and the kernels of the whole."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from deformrs.benchmarks.classifiers import classifier_of
from deformrs.benchmarks.networks import new_network, some_images
from deformrs.benchmarks.plan import Case, Execution
from deformrs.benchmarks.quiet import quietly
from deformrs.benchmarks.rows import N0
from deformrs.benchmarks.timing import medians_in_turns, seconds_of
from deformrs.geometry import warp
from deformrs.smoothing import SmoothedClassifier

BATCHES = 20


@dataclass(frozen=True)
class Share:
    """A stage or an operation: its time, and its share of all."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """`stages` ran alone and uncompiled; `operations` are of the whole path, the longest first.

    `busy` is the share of the time in which the device computed, None on a CPU.
    """

    stages: tuple[Share, ...]
    operations: tuple[Share, ...]
    seconds: float
    busy: float | None


def profile_case(case: Case, family: str, how: Execution, most: int = 12) -> Profile:
    """Over some batches, warmed up."""
    device = torch.device(how.device)
    network = new_network(case.network, case.channels, case.side)
    classifier = classifier_of(network, case, family, how)
    image = some_images(1, case.channels, case.side)[0].to(device)
    stages = _stages(classifier, image, how.repeats)
    samples = max(1, min(case.n * case.images, BATCHES * case.batch_size))
    # Above every level: the profiler's library says when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with quietly(compiling=how.compiled != "no"):
        classifier.warm_up(image)
        classifier.certify(image, samples, N0)
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        # The time of the whole is taken without the profiler, which slows it down.
        seconds = seconds_of(lambda: classifier.certify(image, samples, N0), device)
        with profile(activities=activities) as seen:
            classifier.certify(image, samples, N0)
    spent: dict[str, float] = {}
    for event in seen.key_averages():
        if device.type == "cuda":
            # Launches on the CPU carry the time of their kernels again.
            own = event.self_device_time_total if event.device_type.name == "CUDA" else 0.0
        else:
            own = event.self_cpu_time_total
        spent[event.key] = spent.get(event.key, 0.0) + own / 1e6
    total = sum(spent.values()) or 1.0
    longest = sorted(spent, key=lambda name: -spent[name])[:most]
    return Profile(
        stages,
        tuple(Share(name, spent[name], spent[name] / total) for name in longest if spent[name]),
        seconds,
        min(1.0, total / seconds) if device.type == "cuda" else None,
    )


@torch.inference_mode()
def _stages(classifier: SmoothedClassifier, image: torch.Tensor, repeats: int) -> tuple[Share, ...]:
    """Draw, warp, network and count, each on its own over a batch."""
    size = (image.shape[-2], image.shape[-1])
    space = classifier.deformation.space(size)
    generator = torch.Generator(image.device).manual_seed(0)
    batch = classifier.batch_size

    def draw() -> torch.Tensor:
        return classifier.noise.sample(batch, space, generator)

    params = draw()

    def move() -> torch.Tensor:
        return warp(image, classifier.deformation.field(params, size), classifier.padding)

    moved = move()
    scores = classifier.model(moved)
    counts = torch.zeros(classifier.num_classes, dtype=torch.int64, device=image.device)

    def count() -> None:
        best, answers = scores.max(dim=1)
        best.isfinite().all()
        counts.scatter_add_(0, answers, torch.ones_like(answers))

    works = {
        "draw": draw,
        "warp": move,
        "network": lambda: classifier.model(moved),
        "count": count,
    }
    taken = medians_in_turns(list(works.values()), max(5, repeats), image.device)
    return tuple(
        Share(name, seconds, seconds / sum(taken))
        for name, seconds in zip(works, taken, strict=True)
    )
