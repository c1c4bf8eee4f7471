"""Compare copies, tilt and consistency by certified accuracy on held-out training images.

    python benchmarks/regularisers.py --data cifar10 --epochs 60 --out regularisers.json

Each variant is trained on nine tenths of the training images and certified on the rest, so that
nothing is chosen on test images.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from deformrs import Rotation, SmoothedClassifier, Uniform, certify_dataset, load_data
from deformrs.data import ImageSet
from deformrs.data.image_set import stratified_split
from deformrs.execution import chosen_device
from deformrs.models import NetworkSpec, ResNet18
from deformrs.models.types import Classifier
from deformrs.report.summary import count_certified
from deformrs.training import Plan, read_recipe
from deformrs.training.augmentation import fitting_augmentation
from deformrs.training.distributed import Processes
from deformrs.training.images import normalisation_of, source_for
from deformrs.training.loop import fit

SCALE_DEGREES, RADII_DEGREES = 54.0, (10.0, 30.0, 45.0)


@dataclass(frozen=True)
class Variant:
    """The weights of an objective."""

    copies: int = 1
    tilt: float = 0.0
    consistency: float = 0.0


VARIANTS = (
    Variant(),
    Variant(2),
    Variant(2, tilt=2.0),
    Variant(2, consistency=10.0),
    Variant(2, tilt=2.0, consistency=10.0),
)


def measure(
    variant: Variant, images: ImageSet, epochs: int, width: int, n: int, device: torch.device
) -> dict[str, object]:
    """Train one variant; return its certified accuracy in percent by radius, and seconds."""
    gpu = device.type == "cuda"
    training, held_out = stratified_split(images.labels, 0.1, seed=0)
    first = images[0][0]
    size = (first.shape[1], first.shape[2])
    recipe = (
        read_recipe("fast")
        .fitted(len(training))
        .changed(
            epochs=epochs,
            copies=variant.copies,
            tilt=variant.tilt,
            consistency=variant.consistency,
        )
    )
    augmentation = fitting_augmentation(images.name, size, size)
    plan = Plan(Rotation(), Uniform(math.radians(SCALE_DEGREES)), recipe, augmentation)
    mean, std = normalisation_of(images, training)
    network = ResNet18(num_classes=10, channels=len(first), width=width)
    classifier = Classifier(
        NetworkSpec(network, mean=mean, std=std, channels_last=True), torch.float32
    ).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = fit(
        classifier,
        source_for(images, training, device),
        plan,
        processes=Processes(device),
        precision="bfloat16" if gpu else "float32",
        compiled=gpu,
    )
    start = time.perf_counter()
    smoothed = SmoothedClassifier(
        classifier, plan.deformation, plan.noise, 10, batch_size=4096 if gpu else 256, device=device
    )
    results = list(certify_dataset(smoothed, [images[index] for index in held_out], n=n))
    certified = {
        f"{radius:g}": 100 * count_certified(results, math.radians(radius)) / len(results)
        for radius in RADII_DEGREES
    }
    seconds = [float(str(record["seconds"])) for record in trained.history]
    return dataclasses.asdict(variant) | {
        "epochs": epochs,
        "images": len(results),
        "n": n,
        "certified": certified,
        "training_seconds": sum(seconds) - float(str(trained.history[0]["first_step_seconds"])),
        "certifying_seconds": time.perf_counter() - start,
    }


@click.command()
@click.option("--data", default="digits", show_default=True, help="With a training split.")
@click.option("--epochs", default=2, show_default=True)
@click.option("--width", default=8, show_default=True, help="Of ResNet-18; 64 is the standard.")
@click.option("--n", default=100, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="A JSON file for the rows.")
def main(data: str, epochs: int, width: int, n: int, device: str, out: Path | None) -> None:
    """Measure every variant, print the table and write it."""
    images = load_data(data, split="train")
    radii = [f"{radius:g}°" for radius in RADII_DEGREES]
    table = Table("copies", "tilt", "consistency", *radii, "training, s", title=data)
    rows = []
    for variant in VARIANTS:
        row = measure(variant, images, epochs, width, n, chosen_device(device))
        rows.append(row)
        certified = row["certified"]
        assert isinstance(certified, dict)
        table.add_row(
            *(str(getattr(variant, field.name)) for field in dataclasses.fields(variant)),
            *(f"{value:.2f}" for value in certified.values()),
            f"{row['training_seconds']:.1f}",
        )
        if out is not None:
            out.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    Console().print(table)


if __name__ == "__main__":
    main()
