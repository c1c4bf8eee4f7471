"""One row of the table: certification and the bare network in turns, and the plain loop."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.benchmarks.classifiers import classifier_of
from deformrs.benchmarks.naive import NaiveLoop
from deformrs.benchmarks.networks import CLASSES, Network, some_images
from deformrs.benchmarks.plan import Case, Execution
from deformrs.benchmarks.quiet import quietly
from deformrs.benchmarks.timing import peak_bytes, seconds_in_turns, seconds_of
from deformrs.dataset import device_name
from deformrs.errors import ScarcityWarning
from deformrs.execution import Compiled, compiled
from deformrs.models.optional_dependencies import first_line
from deformrs.models.types import Classifier

N0 = 100


@dataclass(frozen=True)
class Row:
    """One line of the table. What could not be measured is None, and `error` says why.

    `compiled` is how certification really ran, and `compile_seconds` what that took beforehand.
    """

    device: str
    model: str
    family: str
    side: int
    precision: str
    compiled: str
    batch_size: int
    n: int
    images: int
    repeats: int
    samples_per_s: float | None = None
    bare_samples_per_s: float | None = None
    naive_samples_per_s: float | None = None
    ratio_to_bare: float | None = None
    ratio_to_naive: float | None = None
    peak_memory_bytes: int | None = None
    compile_seconds: float | None = None
    warning: str | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What a later measurement of the same takes the place of."""
        how = (self.precision, self.compiled, self.batch_size, self.n)
        return self.model, self.family, self.side, *how


def measure_row(network: Network, case: Case, family: str, how: Execution) -> Row:
    """The row, or one that says what went wrong: the others do not suffer from it."""
    device = torch.device(how.device)
    _forget(device, compiled=how.compiled != "no")
    try:
        with (
            quietly(compiling=how.compiled != "no"),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", ScarcityWarning)
            measured = _measure(network, case, family, how, device)
    except Exception as error:  # whatever a compiler or a device may raise, the row shows it
        return failed_row(case, family, how, f"{type(error).__name__}: {first_line(error)}")
    said = [str(w.message) for w in caught if issubclass(w.category, ScarcityWarning)]
    return dataclasses.replace(measured, warning="; ".join(said) or None)


def failed_row(case: Case, family: str, how: Execution, reason: str) -> Row:
    """The row of what could not be measured."""
    return dataclasses.replace(_begun(case, family, how), error=" ".join(reason.split())[:400])


def _begun(case: Case, family: str, how: Execution) -> Row:
    return Row(
        device=device_name(torch.device(how.device)),
        model=case.network,
        family=family,
        side=case.side,
        precision=how.precision,
        compiled=how.compiled,
        batch_size=case.batch_size,
        n=case.n,
        images=case.images,
        repeats=how.repeats,
    )


def _measure(
    network: Network,
    case: Case,
    family: str,
    how: Execution,
    device: torch.device,
) -> Row:
    classifier = classifier_of(network, case, family, how)
    module = classifier.model
    assert isinstance(module, Classifier)
    images = [image.to(device) for image in some_images(case.images, case.channels, case.side)]
    each = -(-2 * case.batch_size // case.images)  # about two batches in all

    def ours(n: int) -> object:
        return classifier.certify_all(images, n, N0, indices=range(case.images))

    compiling = seconds_of(lambda: classifier.warm_up(images[0], together=case.images), device)
    ours(each)
    memory = peak_bytes(lambda: ours(each), device)

    samples = case.images * (case.n + N0)
    batches = -(-samples // case.batch_size)
    bare = bare_forward(module, images, case.batch_size, classifier.sampler.compiled)
    naive = NaiveLoop(network.built, classifier.deformation, classifier.noise, CLASSES, device)
    image = images[0].cpu()
    bare(1)
    naive.count(image, case.naive_samples // 4)
    works = [lambda: ours(case.n), lambda: bare(batches)]
    turns = seconds_in_turns(works, how.repeats, device)
    our_seconds, bare_seconds = (statistics.median(own) for own in turns)
    # Of turns beside each other: what slows the machine for a while slows both.
    ratio = statistics.median(b / o for o, b in zip(*turns, strict=True))
    naive_seconds = seconds_of(lambda: naive.count(image, case.naive_samples), device)
    ours_per_s = samples / our_seconds
    bare_per_s = batches * case.batch_size / bare_seconds
    naive_per_s = case.naive_samples / naive_seconds
    return dataclasses.replace(
        _begun(case, family, how),
        compiled=classifier.sampler.compiled,
        samples_per_s=round(ours_per_s, 1),
        bare_samples_per_s=round(bare_per_s, 1),
        naive_samples_per_s=round(naive_per_s, 1),
        ratio_to_bare=round(ratio * samples / (batches * case.batch_size), 4),
        ratio_to_naive=round(ours_per_s / naive_per_s, 2),
        peak_memory_bytes=memory,
        compile_seconds=None if how.compiled == "no" else round(compiling, 2),
    )


def bare_forward(
    module: Classifier, images: list[Tensor], batch_size: int, how: Compiled
) -> Callable[[int], None]:
    """Runs the network so many times on one batch that lies ready: normalised, cast, laid out.

    Nothing is warped and nothing counted.
    """
    network = module.network
    ready = _ready(module, images, batch_size)
    forward = network if how == "no" else compiled(network, how)

    @torch.inference_mode()
    def run(times: int) -> None:
        for _ in range(times):
            forward(ready)

    return run


@torch.inference_mode()
def _ready(module: Classifier, images: list[Tensor], batch_size: int) -> Tensor:
    """What the network inside the classifier is given: caught where it comes in."""
    caught: list[Tensor] = []
    hook = module.network.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    try:
        repeated = torch.stack(images).repeat(-(-batch_size // len(images)), 1, 1, 1)
        module(repeated[:batch_size].clone())
    finally:
        hook.remove()
    return caught[0].clone()


def _forget(device: torch.device, *, compiled: bool) -> None:
    """Give back what earlier rows held: compiled code keeps its networks alive."""
    if compiled:
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
