"""Measure training against the bare forward and backward pass of the same network.

    python benchmarks/training.py                         # small sizes, for a CPU
    python benchmarks/training.py --size large --out results.json

Both take turns in one run, on random images held on the device, at the same batch size, precision
and compilation: the whole loop of `deformrs.training` (order, augmentation, noise, warp, forward,
backward, optimizer, bookkeeping), and forward, cross-entropy and backward alone on one batch.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from deformrs.cli.throughput import FAMILIES, seconds
from deformrs.execution import chosen_device
from deformrs.fingerprints import device_name
from deformrs.models import NetworkSpec, ResNet18
from deformrs.models.types import Classifier
from deformrs.training import Augmentation, Plan, Recipe
from deformrs.training.distributed import Processes
from deformrs.training.images import Held
from deformrs.training.loop import fit, training_forward
from deformrs.training.recipes import TrainingPrecision

REPEATS = 3


@dataclass(frozen=True)
class Size:
    """The amount of work."""

    width: int
    batch_size: int
    steps: int


SIZES = {"small": Size(8, 64, 8), "large": Size(64, 512, 60)}


@dataclass(frozen=True)
class Row:
    """The images per second of one family."""

    device: str
    model: str
    family: str
    batch_size: int
    precision: str
    compiled: bool
    images_per_s: float
    bare_images_per_s: float

    @property
    def ratio(self) -> float:
        return self.images_per_s / self.bare_images_per_s


def measure(family: str, size: Size, device: torch.device) -> Row:
    """Measure the training loop and the bare network, in turns."""
    gpu = device.type == "cuda"
    precision: TrainingPrecision = "bfloat16" if gpu else "float32"
    classifier = Classifier(
        NetworkSpec(ResNet18(width=size.width), mean=(0.5,), std=(0.25,), channels_last=True),
        torch.float32,
    ).to(device)
    classifier.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(0)
    count = size.batch_size * size.steps
    pixels = torch.randint(0, 256, (size.batch_size, 3, 32, 32), generator=generator)
    images = pixels.to(torch.uint8).repeat(size.steps, 1, 1, 1)
    source = Held(images, torch.arange(count) % size.batch_size % 10, device)
    deformation, noise = FAMILIES[family]
    recipe = Recipe(REPEATS + 1, size.batch_size, 0.01, nesterov=True, weight_decay=5e-4)
    plan = Plan(deformation, noise, recipe, augmentation=Augmentation(crop=4, flip=True))
    batch, labels = next(source.batches([torch.arange(size.batch_size)]))
    bare = _bare(classifier, batch, labels, precision, compiled=gpu)
    bare_times: list[float] = []

    def run_bare() -> None:
        for _ in range(size.steps):
            bare()

    def watch(moment: object) -> None:
        if getattr(moment, "record", None) is not None:
            bare()
            bare_times.append(seconds(run_bare, device))

    trained = fit(
        classifier,
        source,
        plan,
        processes=Processes(device),
        precision=precision,
        compiled=gpu,
        watch=watch,
    )
    # The first epoch compiles and warms up.
    loop_time = statistics.median(float(str(r["seconds"])) for r in trained.history[1:])
    return Row(
        device_name(device),
        f"resnet18:width={size.width}",
        family,
        size.batch_size,
        precision,
        gpu,
        round(count / loop_time),
        round(count / statistics.median(bare_times[1:])),
    )


def _bare(
    classifier: nn.Module,
    batch: Tensor,
    labels: Tensor,
    precision: TrainingPrecision,
    *,
    compiled: bool,
) -> Callable[[], None]:
    optimizer = torch.optim.SGD(classifier.parameters())
    forward = training_forward(classifier, Processes(batch.device), precision, compiled=compiled)

    def once() -> None:
        loss = cross_entropy(forward(batch), labels)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)

    return once


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="small", show_default=True)
@click.option("--family", "families", multiple=True, type=click.Choice(list(FAMILIES)))
@click.option("--device", default="auto", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="A JSON file for the rows.")
def main(size: str, families: tuple[str, ...], device: str, out: Path | None) -> None:
    """Measure every family, print the table and write it."""
    place = chosen_device(device)
    torch.backends.cudnn.benchmark = True
    rows = [measure(family, SIZES[size], place) for family in families or FAMILIES]
    table = Table("family", "images/s", "bare images/s", "ratio", title=_title(rows[0]))
    for row in rows:
        table.add_row(
            row.family,
            f"{row.images_per_s:,}",
            f"{row.bare_images_per_s:,}",
            f"{row.ratio:.3f}",
        )
    Console().print(table)
    if out is not None:
        content = {"rows": [vars(row) | {"ratio": round(row.ratio, 4)} for row in rows]}
        out.write_text(json.dumps(content, indent=2) + "\n")


def _title(row: Row) -> str:
    mode = "compiled" if row.compiled else "eager"
    return f"{row.model}, batch {row.batch_size}, {row.precision}, {mode}, {row.device}"


if __name__ == "__main__":
    main()
