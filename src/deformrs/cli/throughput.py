"""Throughput of certification, of the bare network and of a naive loop, in samples per second."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from deformrs import __version__
from deformrs.config import Config
from deformrs.deformations import (
    DCT,
    Affine,
    Deformation,
    Rotation,
    Scaling,
    Translation,
    VectorField,
)
from deformrs.errors import InputError, ScarcityWarning, did_you_mean, reason_of
from deformrs.execution import Compiled, compiled
from deformrs.fingerprints import device_name
from deformrs.geometry import pixel_grid, read, size_of
from deformrs.models import NetworkSpec, Precision, initial_network, load_model
from deformrs.models.optional_dependencies import quiet
from deformrs.models.types import Classifier
from deformrs.noise import Gaussian, NoiseLaw, Uniform
from deformrs.plan import SamplingPlan
from deformrs.randomness import TorchGenerator
from deformrs.smoothing import SmoothedClassifier

FAMILIES: dict[str, tuple[Deformation, NoiseLaw]] = {
    "rotation": (Rotation(), Uniform(math.radians(54))),
    "scaling": (Scaling(), Uniform(0.5)),
    "translation": (Translation(), Gaussian(0.4)),
    "affine": (Affine(), Gaussian(0.1)),
    "dct": (DCT(2), Gaussian(0.1)),
    "vector_field": (VectorField(), Gaussian(0.1)),
}
"""The six families of the paper, with scales from the middle of its ablations."""

CPU = torch.device("cpu")
NUM_CLASSES = 10
N0 = 100
REPEATS = 5
NAIVE_BATCH_SIZE = 400


@dataclass(frozen=True)
class Case:
    """One measurement: a network, a family, and how they are executed.

    Certification draws `n` samples for each of `images`, which share batches; the naive loop
    draws `naive_samples` in all.
    """

    network: str
    side: int
    channels: int
    batch_size: int
    n: int
    images: int
    naive_samples: int
    family: str = "rotation"
    device: torch.device = CPU
    precision: Precision = "float32"
    compiled: Compiled = "no"
    repeats: int = REPEATS


# A repetition takes about a second. The first network is measured with all families.
_CPU = (
    Case("small_cnn", 28, 1, 256, 500, 5, 800),
    Case("resnet18:width=16", 32, 3, 256, 100, 3, 400),
    Case("resnet18", 32, 3, 100, 100, 1, 100),
)
_GPU = (
    Case("resnet18", 32, 3, 8192, 100_000, 5, 40_000),
    Case("resnet50", 224, 3, 512, 100_000, 1, 2_000),
    Case("timm:efficientnet_lite0", 224, 3, 512, 100_000, 1, 2_000),
)
_LARGE_SIDE = 224  # the network takes nearly all of the time, whatever the family


@dataclass(frozen=True)
class Row:
    """The figures of one case. What could not be measured is None, and `error` says why.

    `compiled` is how certification really ran, and `compile_seconds` how long compiling took,
    which is part of no other figure.
    """

    case: Case
    compiled: Compiled
    samples_per_s: float | None = None
    bare_samples_per_s: float | None = None
    naive_samples_per_s: float | None = None
    ratio_to_bare: float | None = None
    ratio_to_naive: float | None = None
    compile_seconds: float | None = None
    warning: str | None = None
    error: str | None = None

    def to_json(self) -> Config:
        """Return the row as stored in benchmark records, which call images "pictures"."""
        case = self.case
        about: Config = {
            "device": device_name(case.device),
            "model": case.network,
            "family": case.family,
            "side": case.side,
            "precision": case.precision,
            "compiled": self.compiled,
            "batch_size": case.batch_size,
            "n": case.n,
            "pictures": case.images,
            "repeats": case.repeats,
        }
        return about | {f.name: getattr(self, f.name) for f in dataclasses.fields(self)[2:]}


def select_cases(
    device: torch.device,
    precision: Precision,
    compiled: Compiled = "no",
    *,
    networks: Sequence[str] = (),
    families: Sequence[str] = (),
    batch_size: int | None = None,
    n: int | None = None,
    images: int | None = None,
) -> list[Case]:
    """Return the cases for a device, narrowed to the requested networks and families.

    Networks of a library that is not installed are left out unless they are named.
    """
    defaults = _GPU if device.type == "cuda" else _CPU
    _check_names("the network", networks, [case.network for case in defaults])
    _check_names("the family", families, list(FAMILIES))
    cases = []
    for case in defaults:
        if networks and case.network not in networks:
            continue
        if not networks and case.network.startswith("timm:") and find_spec("timm") is None:
            continue
        own_n, own_images = n or case.n, images or case.images
        own_families = families or (FAMILIES if case.side < _LARGE_SIDE else ["rotation"])
        cases += [
            dataclasses.replace(
                case,
                family=family,
                batch_size=batch_size or case.batch_size,
                n=own_n,
                images=own_images,
                naive_samples=min(case.naive_samples, 10 * own_n * own_images),
                device=device,
                precision=precision,
                compiled=compiled,
            )
            for family in own_families
        ]
    return cases


def measure(case: Case) -> Row:
    """Measure one case. A failure gives a row with its reason, so that other cases still run."""
    _release_memory(case)
    try:
        with (
            quiet("torch._inductor", "torch._dynamo"),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", ScarcityWarning)
            row = _measure(case)
    except Exception as error:  # whatever a compiler or a device may raise
        reason = " ".join(reason_of(error).split())
        return Row(case, case.compiled, error=reason[:400])
    notes = [str(w.message) for w in caught if issubclass(w.category, ScarcityWarning)]
    return dataclasses.replace(row, warning="; ".join(notes) or None)


def _measure(case: Case) -> Row:
    device = case.device
    classifier = smoothed_classifier(case)
    images = [image.to(device) for image in random_images(case.images, case.channels, case.side)]
    samples = case.images * (case.n + N0)
    batches = -(-samples // case.batch_size)
    bare = bare_forward(classifier, images)
    naive = NaiveLoop(case)

    def certify(n: int) -> None:
        classifier.certify_batch(images, range(case.images), SamplingPlan(n, N0))

    compile_seconds = seconds(lambda: classifier.warm_up(images[0], together=case.images), device)
    certify(2 * case.batch_size // case.images + 1)
    bare(1)
    naive.count(images[0], case.naive_samples // 4)

    certify_times, bare_times = seconds_in_turns(
        [lambda: certify(case.n), lambda: bare(batches)], case.repeats, device
    )
    naive_time = seconds(lambda: naive.count(images[0], case.naive_samples), device)
    # The quotient of adjacent turns: whatever slows the machine for a while slows both.
    ratio = statistics.median(b / c for c, b in zip(certify_times, bare_times, strict=True))
    samples_per_s = samples / statistics.median(certify_times)
    naive_per_s = case.naive_samples / naive_time
    return Row(
        case,
        classifier.sampler.compiled,
        samples_per_s=round(samples_per_s, 1),
        bare_samples_per_s=round(batches * case.batch_size / statistics.median(bare_times), 1),
        naive_samples_per_s=round(naive_per_s, 1),
        ratio_to_bare=round(ratio * samples / (batches * case.batch_size), 4),
        ratio_to_naive=round(samples_per_s / naive_per_s, 2),
        compile_seconds=None if case.compiled == "no" else round(compile_seconds, 2),
    )


def smoothed_classifier(case: Case) -> SmoothedClassifier:
    """Return the smoothed classifier of a case on its device, not compiled yet."""
    spec = random_network(case.network, case.channels, case.side)
    return SmoothedClassifier(
        load_model(spec, precision=case.precision, device=case.device).module,
        *FAMILIES[case.family],
        NUM_CLASSES,
        batch_size=case.batch_size,
        device=case.device,
        compiled=case.compiled,
    )


def bare_forward(classifier: SmoothedClassifier, images: Sequence[Tensor]) -> Callable[[int], None]:
    """Return a function that runs the network alone, a given number of times, on one batch.

    The batch is on the device, normalised, cast and laid out; nothing is warped or counted.
    """
    module = classifier.model
    assert isinstance(module, Classifier)
    inputs: list[Tensor] = []
    hook = module.network.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with hook, torch.inference_mode():
        repeats = -(-classifier.batch_size // len(images))
        module(torch.stack(list(images)).repeat(repeats, 1, 1, 1)[: classifier.batch_size])
    batch = inputs[0].clone()
    mode = classifier.sampler.compiled
    forward = module.network if mode == "no" else compiled(module.network, mode)

    @torch.inference_mode()
    def run(times: int) -> None:
        for _ in range(times):
            forward(batch)

    return run


class NaiveLoop:
    """A loop in the manner of the paper's scripts.

    float32 in the default memory format, parameters and fields drawn on the CPU and copied to the
    device, batches of 400, and predictions counted one by one in Python.
    """

    def __init__(self, case: Case) -> None:
        spec = random_network(case.network, case.channels, case.side)
        spec = dataclasses.replace(spec, channels_last=False)
        self.model = Classifier(spec, torch.float32).requires_grad_(False).to(case.device)
        self.deformation, self.noise = FAMILIES[case.family]
        self.device = case.device

    @torch.no_grad()
    def count(self, image: Tensor, n: int, seed: int = 0) -> list[int]:
        """Return how often each class is predicted over n random deformations of an image."""
        size = size_of(image)
        draws = TorchGenerator(torch.Generator().manual_seed(seed))
        grid = pixel_grid(size, "cpu", torch.float32)
        counts = [0] * NUM_CLASSES
        for start in range(0, n, NAIVE_BATCH_SIZE):
            count = min(NAIVE_BATCH_SIZE, n - start)
            params = self.noise.sample(count, self.deformation.space(size), draws)
            points = (grid + self.deformation.field(params, size)).to(self.device)
            batch = image.to(self.device).repeat(count, 1, 1, 1)
            for prediction in self.model(read(batch, points, "zeros")).argmax(1).cpu().numpy():
                counts[prediction] += 1
        return counts


def random_network(name: str, channels: int, side: int) -> NetworkSpec:
    """Return a network with random weights that costs as much as a trained one.

    Names are those of `deformrs train --model`; equal names give equal networks.
    """
    spec = initial_network(name, num_classes=NUM_CLASSES, channels=channels).spec
    _set_statistics(spec.module, channels, side)
    mean, std = (0.5,) * channels, (0.25,) * channels
    return dataclasses.replace(spec, mean=mean, std=std, channels_last=True)


@torch.no_grad()
def _set_statistics(network: nn.Module, channels: int, side: int) -> None:
    """Give batch norms the statistics of images, and weight to blocks that start with none.

    A GPU multiplies zeros with less power, and so faster, than the weights of a trained network.
    """
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            if not module.weight.any():
                nn.init.ones_(module.weight)
            module.momentum = None  # the cumulative average
            module.train()
    images = torch.stack(random_images(4, channels, side, seed=1))
    network((images - 0.5) / 0.25)
    network.eval()


def random_images(count: int, channels: int, side: int, seed: int = 0) -> list[Tensor]:
    """Return smooth random images [channels, side, side] in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 8, 8, generator=generator)
    return list(interpolate(coarse, size=(side, side), mode="bilinear").clamp(0, 1))


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long some work takes, until the device has finished it."""
    _synchronize(device)
    start = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - start


def seconds_in_turns(
    works: Sequence[Callable[[], object]], repeats: int, device: torch.device
) -> list[list[float]]:
    """Return the times of each work, taken in turns: a machine that slows down slows all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for own, work in zip(times, works, strict=True):
            own.append(seconds(work, device))
    return times


def machine(device: torch.device) -> Config:
    """Return the hardware and library versions that figures belong to."""
    return {
        "device": device_name(device),
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.system(),
        "deformrs": __version__,
    }


def _cpu_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _release_memory(case: Case) -> None:
    """Free the memory of earlier cases: compiled code keeps its networks alive."""
    if case.compiled != "no":
        torch.compiler.reset()
    gc.collect()
    if case.device.type == "cuda":
        torch.cuda.empty_cache()


def _check_names(kind: str, names: Sequence[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            rule = "must be one of " + ", ".join(known)
            raise InputError(kind, repr(name), rule, did_you_mean(name, known, "choose one"))
