"""`deformrs certify` on files of every kind, each in a process of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import torchvision_ops
from commands import deformrs, fails
from deformrs.models import SmallCNN, load_model
from deformrs.runs import CERTIFICATES, load_run, read_config

FACTORY = """
from deformrs.models import SmallCNN

def build():
    return SmallCNN(num_classes=3, channels=3, width=4, seed=9)
"""
QUICK = ["--n", "60", "--n0", "20", "--device", "cpu", "--precision", "float32"]
TURN = ["--deformation", "rotation", "--noise", "uniform:30deg"]
COLOURS = {"blue": (20, 30, 220), "green": (20, 200, 40), "red": (210, 20, 30)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photographs of each of three classes, of different sizes."""
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pixels = np.clip(
                np.array(colour) + generator.integers(-20, 20, (40 + 8 * number, 48, 3)), 0, 255
            )
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(tmp_path / "photos" / name / f"{number}.jpg")
    return tmp_path / "photos"


def colour_net() -> SmallCNN:
    return SmallCNN(num_classes=3, channels=3, width=4, seed=11).eval()


def certified(folder: Path, *arguments: str | Path) -> list[int | None]:
    """Certify the photographs by that model; the plain answers."""
    deformrs("certify", *QUICK, *TURN, *arguments, "--data", "photos", "--out", "run", cwd=folder)
    results = load_run(folder / "run")
    assert [result.label for result in results] == [0, 0, 1, 1, 2, 2]
    assert [result.source for result in results][:3] == ["blue/0.jpg", "blue/1.jpg", "green/0.jpg"]
    return [result.plain for result in results]


def answers(folder: Path, source: str, *, weights: Path | None = None) -> list[int]:
    """What that model answers when it is called from Python on images read by hand."""
    loaded = load_model(source, weights=weights)
    found = []
    for file in sorted((folder / "photos").rglob("*.jpg")):
        with Image.open(file) as image:
            pixels = torch.from_numpy(loaded.preparation.prepare(image))
        with torch.inference_mode():
            found.append(int(loaded.module(pixels[None]).argmax()))
    return found


def test_a_run_folder_as_the_model(network: Path) -> None:
    folder = network.parent
    done = deformrs(
        *("certify", "--model", "network", "--data", "digits", *TURN, *QUICK),
        *("--max", "9", "--skip", "2", "--radii", "1deg,20deg", "--fixed"),
        *("--out", "run", "--export", "log.tsv"),
        cwd=folder,
    )
    results = load_run(folder / "run")
    assert [result.index for result in results] == [0, 2, 4, 6, 8]
    held = sum(result.correct and result.certificate.radius > 0.0175 for result in results)
    assert f"up to 1deg   {100 * held / 5:>6.1f} %   {held} of 5" in done.stdout
    assert "uniform noise of scale 30°, n = 60, alpha = 0.001" in done.stdout
    assert "certifying: 5/5" in done.stdout
    assert "img/s" in done.stdout
    assert "samples/s" in done.stdout

    config = read_config(folder / "run")
    assert config["options"]["noise"] == "uniform:30deg"  # type: ignore[index,call-overload]
    assert (config["n"], config["n0"], config["seed"], config["skip"]) == (60, 20, 0, 2)
    assert config["padding"] == "zeros"
    assert config["data"]["name"] == "digits"  # type: ignore[index,call-overload]

    with (folder / "log.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert list(rows[0]) == ["idx", "label", "predict", "radius", "correct", "time"]
    assert [int(row["idx"]) for row in rows] == [0, 2, 4, 6, 8]
    for row, result in zip(rows, results, strict=True):
        assert float(row["radius"]) <= result.certificate.radius
        assert int(row["correct"]) == result.correct


def test_a_factory_with_weights_of_either_kind(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    save_file(colour_net().state_dict(), folder / "net.safetensors")
    torch.save(colour_net().state_dict(), folder / "net.pth")
    source = f"{folder / 'mymodel.py'}:build"
    wanted = answers(folder, source, weights=folder / "net.pth")
    for weights in ("net.safetensors", "net.pth"):
        assert certified(folder, "--model", "mymodel.py:build", "--weights", weights) == wanted
        (folder / "run" / CERTIFICATES).unlink()
        (folder / "run" / "config.json").unlink()


def test_options_shape_the_images_and_are_written_down(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    certified(
        folder,
        *("--model", "mymodel.py:build", "--resize", "24", "--crop", "20"),
        *("--interpolation", "bicubic", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.2,0.2"),
        *("--precision", "bfloat16", "--batch-size", "16", "--padding", "border"),
    )
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["data"]["preparation"] == {
        "resize": 24,
        "crop": [20, 20],
        "interpolation": "bicubic",
        "channels": None,
    }
    assert config["batch_size"] == 16
    assert config["padding"] == "border"
    assert config["model"]["mean"] == [0.5, 0.4, 0.3]
    assert config["model"]["precision"] == "bfloat16"
    assert {result.certificate.space.size for result in load_run(folder / "run")} == {(20, 20)}


def test_an_onnx_file(photos: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    weight = torch.randn(3, 3, generator=torch.Generator().manual_seed(3)).numpy()
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["pictures"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["scores"]),
        ],
        "net",
        [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["n", 3, 24, 24])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor("weight", TensorProto.FLOAT, [3, 3], weight.flatten())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, photos.parent / "net.onnx")
    plain = certified(photos.parent, "--model", "net.onnx", "--resize", "24")
    assert plain == answers_onnx(photos, weight)


def answers_onnx(photos: Path, weight: np.ndarray) -> list[int]:
    """The same by hand: mean colour of the centre, times a matrix."""
    found = []
    for file in sorted(photos.rglob("*.jpg")):
        with Image.open(file) as image:
            scale = 24 / min(image.size)
            small = image.resize(
                (int(image.width * scale), int(image.height * scale)),
                Image.Resampling.BILINEAR,
            )
        left, top = round((small.width - 24) / 2), round((small.height - 24) / 2)
        mean = np.asarray(small)[top : top + 24, left : left + 24].reshape(-1, 3).mean(axis=0) / 255
        found.append(int((mean @ weight).argmax()))
    return found


def test_an_exported_program(photos: Path) -> None:
    folder = photos.parent
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(
        colour_net(), (torch.zeros(2, 3, 24, 24),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(program, folder / "net.pt2")
    sizes = ("--resize", "24", "--crop", "24")
    plain = certified(folder, "--model", "net.pt2", "--trust-code", *sizes)
    (folder / "run" / CERTIFICATES).unlink()
    (folder / "run" / "config.json").unlink()
    (folder / "mymodel.py").write_text(FACTORY.replace("seed=9", "seed=11"))
    assert plain == certified(folder, "--model", "mymodel.py:build", *sizes)


def test_a_timm_name_with_local_weights(photos: Path) -> None:
    torchvision_ops.declare()
    import timm

    folder = photos.parent
    net = timm.create_model("test_resnet", pretrained=False)
    save_file(net.state_dict(), folder / "net.safetensors")
    # A thousand classes, three folders: their names must be what the model knows.
    (folder / "photos" / "labels.csv").write_text(
        "file,label\n"
        + "".join(
            f"{file.relative_to(photos)},{list(COLOURS).index(file.parent.name)}\n"
            for file in sorted(photos.rglob("*.jpg"))
        )
    )
    plain = certified(
        folder, "--model", "timm:test_resnet", "--weights", "net.safetensors", "--batch-size", "20"
    )
    assert plain == answers(folder, "timm:test_resnet", weights=folder / "net.safetensors")


def test_a_torchvision_name_with_local_weights(photos: Path) -> None:
    torchvision_ops.declare()
    import torchvision

    folder = photos.parent
    net = torchvision.models.get_model("squeezenet1_1", weights=None)
    torch.save(net.state_dict(), folder / "net.pth")
    labels = "".join(
        f"{file.relative_to(photos)},{list(COLOURS).index(file.parent.name)}\n"
        for file in sorted(photos.rglob("*.jpg"))
    )
    (photos / "labels.csv").write_text("file,label\n" + labels)
    plain = certified(
        folder,
        *("--model", "torchvision:squeezenet1_1", "--weights", "net.pth"),
        *("--resize", "64", "--crop", "64"),
    )
    assert len(plain) == 6
    config = read_config(folder / "run")
    assert config["data"]["preparation"]["crop"] == [64, 64]  # type: ignore[index,call-overload]
    assert config["model"]["mean"] == [0.485, 0.456, 0.406]  # type: ignore[index,call-overload]


def test_a_hugging_face_model(photos: Path) -> None:
    torchvision_ops.declare()
    from transformers import ResNetConfig, ResNetForImageClassification

    folder = photos.parent
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    config.id2label = {0: "red", 1: "blue", 2: "green"}
    config.label2id = {"red": 0, "blue": 1, "green": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = ResNetForImageClassification(config)  # type: ignore[no-untyped-call]
    net.save_pretrained(folder / "hub")
    (folder / "hub" / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "ConvNextImageProcessor",
                "do_resize": True,
                "size": {"shortest_edge": 32},
                "crop_pct": 0.875,
                "do_rescale": True,
                "rescale_factor": 1 / 255,
                "do_normalize": True,
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.5, 0.5, 0.5],
            }
        )
    )
    deformrs(
        *("certify", "--model", "hf:hub", "--data", "photos", *TURN, *QUICK, "--out", "run"),
        cwd=folder,
    )
    # Labels are those of the model, found by the names of the folders.
    assert [result.label for result in load_run(folder / "run")] == [1, 1, 2, 2, 0, 0]
    said = deformrs("predict", "photos/red/0.jpg", "--run", "run", "--n", "50", cwd=folder).stdout
    assert any(word in said for word in ("red, holds", "blue, holds", "green, holds", "abstains"))


def test_npz(network: Path) -> None:
    folder = network.parent
    images = np.random.default_rng(1).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez(folder / "some.npz", images=images, labels=np.array([3, 1, 2]))
    deformrs(
        *("certify", "--model", "network", "--data", "some.npz", *TURN, *QUICK, "--out", "run"),
        cwd=folder,
    )
    assert [result.label for result in load_run(folder / "run")] == [3, 1, 2]


def test_a_composition_and_its_region(network: Path) -> None:
    folder = network.parent
    arguments = (
        *("certify", "--model", "network", "--data", "digits", *QUICK, "--max", "6"),
        *("--deformation", "rotation+scaling", "--noise", "uniform:60deg+uniform:40%"),
        *("--out", "run"),
    )
    region = "rotation<=1deg, scale=0.99..1.01"
    said = deformrs(*arguments, "--region", region, cwd=folder).stdout
    results = load_run(folder / "run")
    from deformrs import Region

    held = sum(r.correct and r.certificate.covers_region(Region.parse(region)) for r in results)
    assert f"for {region}" in said
    assert f"{held} of 6" in said
    assert "ask for a region" in fails(*arguments, "--radii", "10deg", cwd=folder)


def test_the_same_command_again_changes_nothing(network: Path) -> None:
    arguments = (
        *("certify", "--model", "network", "--data", "digits", *TURN, *QUICK),
        *("--max", "3", "--out", "run"),
    )
    deformrs(*arguments, cwd=network.parent)
    before = (network.parent / "run" / CERTIFICATES).read_bytes()
    deformrs(*arguments, cwd=network.parent)
    assert (network.parent / "run" / CERTIFICATES).read_bytes() == before
    line = fails(*arguments, "--noise", "uniform:31deg", cwd=network.parent)
    assert "cannot go on with other settings" in line
    assert "noise.scale: 0.5235987755982988 there, 0.5410520681182421 here" in line
    assert (network.parent / "run" / CERTIFICATES).read_bytes() == before


def test_a_plug_in_that_changed_is_refused(network: Path) -> None:
    lens = network.parent / "lens.py"
    lens.write_text(
        "from dataclasses import dataclass\n"
        "import torch\n"
        "from deformrs import Deformation\n"
        "STRENGTH = 1.0\n"
        "@dataclass(frozen=True)\n"
        "class Bulge(Deformation):\n"
        "    name = 'bulge'\n"
        "    def dim(self, size):\n"
        "        return 1\n"
        "    def displacement(self, params, points, size):\n"
        "        return STRENGTH * params[:, :, None, None] * points\n"
    )
    arguments = (
        *("certify", "--model", "network", "--data", "digits", *QUICK, "--out", "run"),
        *("--deformation", "lens.py:Bulge", "--noise", "gaussian:0.1"),
    )
    deformrs(*arguments, "--max", "2", cwd=network.parent)
    deformrs(*arguments, "--max", "3", cwd=network.parent)
    lens.write_text(lens.read_text().replace("STRENGTH = 1.0", "STRENGTH = -9.0"))
    line = fails(*arguments, "--max", "4", cwd=network.parent)
    assert "plugins.lens.py: " in line
    assert len(load_run(network.parent / "run")) == 3
