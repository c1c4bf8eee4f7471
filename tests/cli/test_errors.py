"""Bad input on the command line: a one-line error, a non-zero exit code, nothing lost."""

from __future__ import annotations

import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from commands import deformrs, fails
from deformrs.models import SmallCNN
from deformrs.runs import CERTIFICATES, load_run

FACTORY = """
from deformrs.models import SmallCNN

def build():
    return SmallCNN(num_classes=10, channels=1, width=4, seed=9)
"""
ASKED = [
    *("--deformation", "rotation", "--noise", "uniform:30deg", "--n", "50", "--n0", "20"),
    *("--device", "cpu", "--out", "run"),
]


def certify(*arguments: str) -> list[str]:
    return ["certify", "--model", "network", "--data", "photos", *ASKED, *arguments]


@pytest.fixture
def photos(network: Path) -> Path:
    """Ten digits in a folder with labels.csv."""
    folder = network.parent / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(10):
        pixels = generator.integers(0, 256, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    rows = "".join(f"{number}.png,{number}\n" for number in range(10))
    (folder / "labels.csv").write_text("file,label\n" + rows)
    return folder


def test_a_missing_image(photos: Path) -> None:
    (photos / "3.png").unlink()
    line = fails(*certify(), cwd=photos.parent)
    assert "3.png" in line


def test_corrupt_images_are_all_named_before_anything_is_sampled(photos: Path) -> None:
    whole = (photos / "4.png").read_bytes()
    (photos / "4.png").write_bytes(whole[: len(whole) // 2])
    (photos / "7.png").write_bytes(b"")
    line = fails(*certify(), cwd=photos.parent)
    assert "4.png" in line
    assert "7.png" in line
    assert load_run(photos.parent / "run") == []
    (photos / "4.png").write_bytes(whole)
    (photos / "7.png").write_bytes(whole)
    deformrs(*certify(), cwd=photos.parent)
    assert len(load_run(photos.parent / "run")) == 10


def test_a_label_out_of_range(photos: Path) -> None:
    (photos / "labels.csv").write_text("file,label\n0.png,3\n1.png,10\n")
    line = fails(*certify(), cwd=photos.parent)
    assert "1.png" in line
    assert "10" in line
    assert not (photos.parent / "run").exists()


def test_an_empty_folder(photos: Path) -> None:
    (photos.parent / "nothing").mkdir()
    assert "nothing" in fails(*certify("--data", "nothing"), cwd=photos.parent)
    assert "nowhere" in fails(*certify("--data", "nowhere"), cwd=photos.parent)


def test_weights_that_do_not_fit(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    save_file(SmallCNN(width=6).state_dict(), folder / "wide.safetensors")
    line = fails(
        *certify("--model", "mymodel.py:build", "--weights", "wide.safetensors"), cwd=folder
    )
    assert "features.0.0.weight" in line
    state = SmallCNN(width=4).state_dict()
    del state["head.bias"]
    torch.save(state, folder / "short.pth")
    line = fails(*certify("--model", "mymodel.py:build", "--weights", "short.pth"), cwd=folder)
    assert "head.bias" in line


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_hidden_payload_is_refused_and_never_executed(photos: Path) -> None:
    folder = photos.parent
    (folder / "mymodel.py").write_text(FACTORY)
    hidden = Payload(folder / "executed")
    torch.save(SmallCNN(width=4).state_dict() | {"hidden": hidden}, folder / "hidden.pth")
    (folder / "bare.pth").write_bytes(pickle.dumps(hidden))
    for weights in ("hidden.pth", "bare.pth"):
        line = fails(*certify("--model", "mymodel.py:build", "--weights", weights), cwd=folder)
        assert "safetensors" in line
    assert not (folder / "executed").exists()
    pickle.loads((folder / "bare.pth").read_bytes())
    assert (folder / "executed").exists(), "the payload works where it is let loose"


def test_a_full_disk_loses_nothing(photos: Path) -> None:
    """The operating system refuses to let a file grow beyond a limit, as a full disk does."""
    folder = photos.parent
    deformrs(*certify(), cwd=folder)
    path = folder / "run" / CERTIFICATES
    whole = path.read_bytes()
    path.write_bytes(whole.splitlines(keepends=True)[0])  # as if killed after the first image
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(2.5 * path.stat().st_size), limits[1]))
    try:
        line = fails(*certify(), cwd=folder)
        assert "File too large" in line
        assert "run/certificates.jsonl" in line
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(load_run(folder / "run")) == 2
    deformrs(*certify(), cwd=folder)
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written(photos: Path) -> None:
    (photos.parent / "file").write_text("")
    line = fails(*certify("--out", "file/run"), cwd=photos.parent)
    assert "file" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--deformation", "rotatoin"], "did you mean 'rotation'"),
        (["--noise", "unifrom:30deg"], "did you mean 'uniform'"),
        (["--noise", "uniform:30"], "must be a number with its unit"),
        (["--model", "tim:resnet18"], "timm:"),
        (["--data", "digit"], "did you mean 'digits'"),
        (["--device", "cudda"], "cannot be used here"),
        (["--device", "meta"], "cannot be used here"),
        (["--mean", "123.7", "--std", "58.4"], "--mean 0.4851 --std 0.229"),
        (["--mean", "0.5"], "std not given; it needs both"),
        (["--out", "photos/0.png"], "must not be a file"),
        (["--alpha", "2"], "alpha is 2.0; it must lie in (0, 1)"),
        (["--n", "0"], "n is 0"),
        (["--skip", "0"], "skip is 0"),
        (["--region", "rotatoin<=3deg"], "did you mean 'rotation'"),
        (["--method", "clopper_person"], "did you mean 'clopper_pearson'"),
        (["--split", "train"], "photos has none: leave it out"),
    ],
)
def test_values_that_cannot_be(photos: Path, arguments: list[str], message: str) -> None:
    assert message in fails(*certify(*arguments), cwd=photos.parent)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certfy"], "did you mean 'certify'"),
        (certify("--precision", "bfloat"), "did you mean 'bfloat16'"),
        (certify("--padding", "zero"), "did you mean 'zeros'"),
        (certify("--mean", "a,b"), "must be numbers"),
        (certify("--batch-size", "0"), "'--batch-size': '0' must be auto, or an integer above 0"),
        (certify("--batch-size", "x"), "'--batch-size': 'x' must be auto, or an integer above 0"),
        (certify("--nois", "uniform:3deg"), "--noise"),
        (["certify", "--data", "digits", "--out", "run"], "--model"),
        (["report"], "RUNS"),
        (certify("--radii", ""), "--radii is empty"),
        (certify("--radii", ","), "it is empty"),
        (["report", "run", "--radii", " ,"], "it is empty"),
        (
            ["report", "run", "--export", "nowhere/log.tsv"],
            "must be a file in a folder that exists",
        ),
    ],
)
def test_options_that_cannot_be_read(photos: Path, arguments: list[str], message: str) -> None:
    assert message in fails(*arguments, cwd=photos.parent, code=2)


def test_one_grey_image_among_colours_is_named_beforehand(tmp_path: Path) -> None:
    (tmp_path / "mymodel.py").write_text(FACTORY.replace("channels=1", "channels=3"))
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.new("L" if number == 1 else "RGB", (30, 30)).save(
            tmp_path / "photos" / f"{number}.png"
        )
    rows = "".join(f"{number}.png,{number}\n" for number in range(3))
    (tmp_path / "photos" / "labels.csv").write_text("file,label\n" + rows)
    line = fails(*certify("--model", "mymodel.py:build"), cwd=tmp_path)
    assert "1.png is of 1 channel(s)" in line
    assert "--channels" in line
    deformrs(*certify("--model", "mymodel.py:build", "--channels", "3"), cwd=tmp_path)


def test_a_run_is_found_from_another_folder(photos: Path) -> None:
    deformrs(*certify("--max", "2"), cwd=photos.parent)
    elsewhere = photos.parent / "else" / "where"
    elsewhere.mkdir(parents=True)
    done = deformrs("predict", "../../photos/0.png", "--run", "../../run", cwd=elsewhere)
    assert done.stdout.startswith("../../photos/0.png: ")
    assert deformrs("report", "../../run", cwd=elsewhere).stderr == "", "the images are found"


def test_too_little_memory_is_one_line(photos: Path) -> None:
    (photos.parent / "mymodel.py").write_text(
        "import torch\n"
        "class Greedy(torch.nn.Module):\n"
        "    def forward(self, images):\n"
        "        return torch.empty(len(images), 2**50)\n"
        "def build():\n"
        "    return Greedy()\n"
    )
    line = fails(*certify("--model", "mymodel.py:build"), cwd=photos.parent)
    assert "the memory of the device is too small" in line
