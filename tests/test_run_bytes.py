"""A fixed seed writes the same bytes as ever: runs of every family, compared with stored ones.

The stored runs in `tests/runs_as_before` have noise of Philox. To store them anew, after a
deliberate change of the noise or of the record format: `python -m tests.test_run_bytes`.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deformrs import (
    DCT,
    Affine,
    Compose,
    Gaussian,
    Independent,
    Rotation,
    Scaling,
    Shear,
    SmoothedClassifier,
    Stopping,
    Translation,
    Uniform,
    VectorField,
    certify_dataset,
)

STORED = Path(__file__).parent / "runs_as_before"
ENVIRONMENT = ("torch", "device", "version")
"""What a configuration says of the machine that wrote it."""


def brightest_third(images: Tensor) -> Tensor:
    """Which third of the columns is brightest? Deformations move the answer now and then."""
    return torch.stack([part.sum((1, 2, 3)) for part in images.tensor_split(3, dim=-1)], dim=1)


def dataset() -> list[tuple[Tensor, int]]:
    """Six images with a bright spot each, nearer and nearer to the edge of its third."""
    images = torch.zeros(6, 1, 12, 12)
    for index, column in enumerate((1, 2, 5, 6, 8, 9)):
        images[index, :, 3 : 5 + index % 3, column : column + 2] = 0.5 + 0.08 * index
    return [(image, (0, 0, 1, 1, 2, 0)[index]) for index, image in enumerate(images)]


DECIDE = Stopping(radii=("5deg", "20deg"), regions=("rotation<=10deg",))
SQUARE = Stopping(regions=("rotation<=5deg, scale=0.95..1.05",))

RUNS: dict[str, Callable[[], tuple[SmoothedClassifier, dict[str, object]]]] = {
    "translation": lambda: (smoothed(Translation(), Gaussian(0.3)), {}),
    "rotation": lambda: (smoothed(Rotation(), Uniform(math.pi)), {}),
    "scaling": lambda: (smoothed(Scaling(), Uniform(0.5)), {"method": "bonferroni"}),
    "shear": lambda: (smoothed(Shear(), Gaussian(0.4)), {"method": "anytime"}),
    "affine": lambda: (smoothed(Affine(), Gaussian((0.1, 0.2, 0.2, 0.1, 0.1, 0.1))), {}),
    "dct": lambda: (smoothed(DCT(2), Uniform(0.2)), {}),
    "vector_field": lambda: (smoothed(VectorField(), Gaussian(0.2)), {}),
    "compose": lambda: (
        smoothed(Compose(Rotation(), Translation()), Independent(Uniform(0.9), Gaussian(0.2))),
        {"skip": 2, "seed": 5},
    ),
    "decide_radii": lambda: (
        smoothed(Rotation(), Uniform(math.radians(60))),
        {"stopping": DECIDE, "n": 2000, "method": "anytime:2000"},
    ),
    "decide_tolerance": lambda: (
        smoothed(Translation(), Gaussian(0.3)),
        {
            "stopping": Stopping(tolerance="0.2px"),
            "n": 3000,
            "together": 2,
            "method": "anytime:3000",
        },
    ),
    "auto": lambda: (smoothed(Translation(), Gaussian(0.3)), {"method": "auto"}),
    "auto_decided": lambda: (
        smoothed(Affine(), Gaussian(0.2)),
        {"stopping": Stopping(regions=("rotation<=2deg",)), "n": 2000, "method": "auto"},
    ),
    "stratified": lambda: (
        smoothed(Rotation(), Uniform(math.radians(60))),
        {"stopping": DECIDE, "n": 10_000, "method": "auto"},
    ),
    "stratified_plane": lambda: (
        smoothed(Translation(), Gaussian(0.3)),
        {"stopping": Stopping(tolerance="0.2px"), "n": 6000, "together": 2, "method": "auto"},
    ),
    "stratified_square": lambda: (
        smoothed(Compose(Rotation(), Scaling()), Independent(Uniform(0.9), Gaussian(0.2))),
        {"stopping": SQUARE, "n": 6000, "method": "auto"},
    ),
}


def smoothed(deformation: object, noise: object) -> SmoothedClassifier:
    return SmoothedClassifier(
        brightest_third,
        deformation,  # type: ignore[arg-type]
        noise,  # type: ignore[arg-type]
        num_classes=3,
        batch_size=200,
    )


def write_run(name: str, out: Path) -> None:
    classifier, arguments = RUNS[name]()
    arguments = {"n": 700, "n0": 50, "seed": 1, "method": "clopper_pearson"} | arguments
    about = {"data": {"name": "spots"}}
    for _ in certify_dataset(classifier, dataset(), out=out, about=about, **arguments):  # type: ignore[arg-type]
        pass


def configuration(folder: Path) -> str:
    """The text of config.json, without the machine, and the request: older runs have none."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("requested", None)
    pruned = {key: value for key, value in config.items() if key not in ENVIRONMENT}
    assert set(config) - set(pruned) == set(ENVIRONMENT)
    return json.dumps(pruned, indent=2)


@pytest.mark.parametrize("name", RUNS)
def test_a_fixed_seed_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    write_run(name, tmp_path)
    stored = STORED / name
    records, expected = (
        (folder / "certificates.jsonl").read_text().splitlines() for folder in (tmp_path, stored)
    )
    assert len(expected) == len(records)
    for record, before in zip(records, expected, strict=True):
        assert record == before
    assert configuration(tmp_path) == configuration(stored)


if __name__ == "__main__":
    for run in sys.argv[1:] or RUNS:
        shutil.rmtree(STORED / run, ignore_errors=True)
        write_run(run, STORED / run)
        (STORED / run / "times.tsv").unlink()
