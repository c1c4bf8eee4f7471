"""Certification in one line of Python, by the path that the command line takes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from commands import deformrs
from deformrs import (
    DeformRSError,
    Preparation,
    Rotation,
    SmoothedClassifier,
    Uniform,
    certify,
    certify_dataset,
    curve,
    load_data,
    load_model,
    results_frame,
)
from deformrs.cli.defaults import options_from_run
from deformrs.config import Config
from deformrs.data.loading import StoredImages, data_of
from deformrs.models import NetworkSpec, SmallCNN, save_model
from deformrs.runs import CERTIFICATES, CertifiedRun, read_run

TURN = ("rotation", "uniform:30deg")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network")
    save_model(folder, SmallCNN(width=4, seed=0), Preparation(channels=1))
    return folder


def test_it_writes_what_the_verb_certify_writes(network: Path, tmp_path: Path) -> None:
    options = ("--deformation", TURN[0], "--noise", TURN[1], "--radii", "10deg,20deg")
    verb = ("certify", "--model", network, "--data", "digits", *options, "--n", "300", "--max", "6")
    deformrs(*verb, "--device", "cpu", "--out", tmp_path / "verb")
    settings = {"radii": "10deg,20deg", "n": 300, "out": tmp_path / "python", "device": "cpu"}
    certify(network, "digits", *TURN, max=3, **settings)  # type: ignore[arg-type]
    run = certify(network, "digits", *TURN, max=6, **settings)  # type: ignore[arg-type]
    stored = [(tmp_path / name / CERTIFICATES).read_bytes() for name in ("verb", "python")]
    assert stored[0] == stored[1]
    assert list(run) == read_run(tmp_path / "verb").results
    # The verbs that read a run find its model, images and noise.
    assert data_of(read_run(tmp_path / "python")).name == "digits"
    model, _, smoothing = options_from_run(tmp_path / "python")
    assert Path(model.model).samefile(network)
    assert (smoothing.deformation, smoothing.noise) == TURN


def test_a_run_is_a_sequence_that_prints_as_a_table() -> None:
    def brighter_half(images: torch.Tensor) -> torch.Tensor:
        halves = images.chunk(2, dim=-1)
        return torch.stack([half.sum((1, 2, 3)) for half in halves], dim=1)

    class Brighter(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return brighter_half(images)

    image = torch.zeros(1, 8, 8)
    image[:, 3:5, 6:8] = 1
    run = certify(Brighter(), [(image, 1), (image, 0)], *TURN, n=1000)
    assert [result.correct for result in run] == [True, False]
    assert len(run[:1]) == 1
    assert str(run).splitlines() == [
        "2 images, uniform noise of scale 30°, n = 1,000, alpha = 0.001",
        "  model alone                 50.0 %",
        "  smoothed model              50.0 %",
        "  certified up to 5deg        50.0 %",
        *(f"  certified up to {degrees}deg       50.0 %" for degrees in (10, 15, 20, 25)),
        "  average radius              14.79°",
    ]
    assert len(results_frame(run)) == 2
    decided = certify(Brighter(), [(image, 1)], *TURN, radii="20deg", regions="rotation<=5deg")
    radii = np.asarray(curve(decided).axes[0].lines[0].get_xdata())
    assert radii.max() == 20, "beyond is not 0 %"
    assert [line.split()[:-2] for line in str(decided).splitlines()[3:]] == [
        ["certified", "up", "to", "20deg"],
        ["certified", "for", "rotation<=5deg"],
    ]


def test_models_and_data_as_people_have_them() -> None:
    network = SmallCNN(width=4, seed=0)
    loaded = load_model(network, precision="auto")
    images, labels = torch.rand(3, 1, 12, 12), torch.tensor([0, 1, 2])
    smoothed = SmoothedClassifier(loaded, Rotation(), Uniform(0.5))
    expected = list(certify_dataset(smoothed, (images, labels), n=50))
    for model in (network, NetworkSpec(network), loaded):
        assert list(certify(model, (images, labels), Rotation(), Uniform(0.5), n=50)) == expected
    loader = DataLoader(TensorDataset(images, labels), batch_size=2)
    assert list(certify(network, loader, "rotation", Uniform(0.5), n=50)) == expected


def test_images_of_pil_are_prepared_and_others_must_be() -> None:
    spec = NetworkSpec(SmallCNN(width=4, seed=0), Preparation(resize=16, crop=(12, 12), channels=1))
    wide = Image.effect_noise((40, 30), 60).convert("RGB")
    (result,) = certify(spec, [(wide, 0)], *TURN, n=20)
    assert result.certificate.space.size == (12, 12)
    pixels = spec.preparation.prepare(wide)
    assert list(certify(spec, [(pixels, 0)], *TURN, n=20)) == [result]
    for image in (torch.rand(1, 28, 28), torch.rand(3, 12, 12), load_data("digits")[0][0]):
        with pytest.raises(DeformRSError, match="must be prepared as the model expects"):
            certify(spec, [(image, 0)], *TURN, n=20)


def test_the_classes_of_a_dataset_are_the_models() -> None:
    spec = NetworkSpec(SmallCNN(width=4), class_names=tuple("abcdefghij"))
    with pytest.raises(DeformRSError, match=r"must be the model's: a, b, c.*class_names="):
        certify(spec, load_data("digits", Preparation(channels=1)), *TURN, n=20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "net.pt2"}, "must come from someone you trust"),
        ({"model": lambda images: images}, "a function to SmoothedClassifier"),
        ({"model": "resnet18"}, "timm:resnet18"),
        ({"data": "digitz"}, "did you mean 'digits'"),
        ({"data": []}, "must have at least one image"),
        ({"deformation": "rotatoin"}, "did you mean 'rotation'"),
        ({"noise": "uniform:30"}, "with its unit"),
        ({"noise": 30}, "must be a noise law"),
        ({"radii": "5px"}, "with its unit"),
        ({"radii": 5}, "must be a tuple"),
        ({"model": load_model(SmallCNN(width=4)), "weights": "net.pth"}, "a loaded model"),
    ],
)
def test_mistakes_are_named(
    arguments: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.pt2").write_bytes(b"PK")
    given: dict[str, object] = {
        "model": SmallCNN(width=4),
        "data": "digits",
        "deformation": "rotation",
        "noise": "uniform:30deg",
        "n": 20,
        "max": 1,
    }
    with pytest.raises(DeformRSError, match=message):
        certify(**given | arguments)  # type: ignore[arg-type]


def test_the_run_of_objects_names_its_images_and_is_not_taken_for_one_of_text(
    tmp_path: Path,
) -> None:
    run = certify(SmallCNN(width=4), "digits", Rotation(), Uniform(0.5), n=20, max=1, out=tmp_path)
    assert StoredImages()(read_run(tmp_path), run[0]) is not None
    with pytest.raises(DeformRSError, match="made in Python from objects"):
        options_from_run(tmp_path)


def test_doubtful_labels_and_an_accuracy_near_chance_are_warned_of(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in ("cat", "dog", "owl"):
        (tmp_path / name).mkdir()
        for number in range(8):
            pixels = generator.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    network = SmallCNN(num_classes=3, width=4)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        certify(network, tmp_path, *TURN, n=20, n0=10)
    order, chance = (str(warning.message) for warning in warned)
    assert "in sorted order: cat = 0, dog = 1, owl = 2; compare" in order
    assert "of guessing among 3 classes. Likely causes:\n  - labels" in chance
    assert {warning.filename for warning in warned} == {__file__}
    certify(network, tmp_path, *TURN, n=20, n0=10, class_names=["cat", "dog", "owl"], max=3)


def test_max_is_spread_over_the_classes_of_datasets_that_name_targets() -> None:
    class Sorted(list[tuple[torch.Tensor, int]]):
        targets = (0, 0, 0, 1, 1, 1)

    data = Sorted((torch.zeros(1, 28, 28), label) for label in Sorted.targets)
    run = certify(SmallCNN(width=4), data, *TURN, n=20, n0=10, max=4)
    assert [result.index for result in run] == [0, 3, 1, 4]


def test_radii_are_printed_rounded_down_and_all_of_them() -> None:
    """On images of several sizes, 1 px and 0.25 half sides are two queries."""
    run = certify(SmallCNN(width=4), "digits", "rotation", "uniform:50deg", n=20, max=1)
    for radii, expected in (
        ([math.radians(12.34567)], ["12.34°"]),
        (["2deg", "30deg", math.radians(30)], ["2deg", "30deg", "29.99°"]),
    ):
        stopping: Config = {"radii": [*radii], "regions": [], "tolerance": None}
        lines = repr(CertifiedRun(run.config | {"stopping": stopping}, run.results)).splitlines()
        shown = [line.split()[3] for line in lines if "certified up to" in line]
        assert sorted(shown) == sorted(expected)


def test_a_stored_region_of_an_older_run_is_printed_as_scaling() -> None:
    """There, zoom meant what is called scale now."""
    run = certify(SmallCNN(width=4), "digits", "scaling", "uniform:50%", n=20, max=1)
    stopping: Config = {"radii": [], "regions": ["zoom=0.7..1.1"], "tolerance": None}
    text = repr(CertifiedRun(run.config | {"stopping": stopping}, run.results))
    assert "scal" in text
    assert "zoom" not in text
