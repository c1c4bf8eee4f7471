"""Failures of models, datasets, files, options and streams: one line each, naming the cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from commands import ENVIRONMENT, command, deformrs, fails
from deformrs import Rotation, SmoothedClassifier, Stopping, Uniform
from deformrs.checks import check_alpha, is_real
from deformrs.data.download import default_root
from deformrs.dataset import certify_dataset
from deformrs.errors import InputError, LogitError, ModelError, first_line, reason_of
from deformrs.runs import load_run
from examples import IMAGE
from made_runs import Entry, stored

SMOOTHING = ["--deformation", "rotation", "--noise", "uniform:30deg", "--device", "cpu"]
CERTIFY = ["certify", "--data", "digits", "--max", "3", "--n", "20", *SMOOTHING]


@pytest.fixture(autouse=True)
def here(network: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(network.parent)
    return network.parent


def rows(images: Tensor) -> Tensor:
    """Which of five rows is the brightest?"""
    return images[:, 0, :10].reshape(-1, 5, 24).amax(dim=2)


@dataclass
class Failing:
    """A model that fails at its calls beyond `start`."""

    fail: Callable[[], object]
    start: int = 0
    calls: int = field(default=0)

    def __call__(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.start:
            self.fail()
        return rows(images)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text either")

    __repr__ = __str__


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


RAISED: list[tuple[BaseException, str]] = [
    (IndexError("too far"), "IndexError: too far"),
    (KeyError("head"), "KeyError: 'head'"),
    (AssertionError(), "AssertionError"),
    (StopIteration(), "StopIteration"),
    (OSError("no such file"), "OSError: no such file"),
    (SystemExit(0), "SystemExit: 0"),
    (GeneratorExit(), "GeneratorExit"),
    (UnprintableError(), "UnprintableError"),
    (RecursionError("deep"), "RecursionError: deep"),
]


@pytest.mark.parametrize("start", [0, 14])
@pytest.mark.parametrize("error", RAISED, ids=lambda pair: type(pair[0]).__name__)
def test_whatever_a_model_raises_is_an_error_of_the_model(
    error: tuple[BaseException, str], start: int, tmp_path: Path
) -> None:
    """Even what would end the program, as if it had done its work."""
    model = Failing(raising(error[0]), start)
    g = SmoothedClassifier(model, Rotation(), Uniform(2.0), 5, batch_size=8)
    with pytest.raises(ModelError, match=f"the model's output is an error .{error[1]}"):
        list(certify_dataset(g, [(IMAGE, 0)] * 3, n=100, out=tmp_path / "run"))
    assert model.calls == start + 1


def test_an_interruption_is_none_of_the_models() -> None:
    g = SmoothedClassifier(Failing(raising(KeyboardInterrupt())), Rotation(), Uniform(2.0), 5)
    with pytest.raises(KeyboardInterrupt):
        g.certify(IMAGE, n=100)


@pytest.mark.parametrize(
    "output",
    [
        *("None", "(1, 2)", "'abc'", "[]", "{}", "images.double().long()", "torch.zeros(0, 3)"),
        *("torch.zeros(len(images), 0)", "torch.zeros(len(images), 1)", "torch.zeros(())"),
        "torch.zeros(len(images), 3, dtype=torch.complex64)",
    ],
)
def test_outputs_that_are_no_logits(output: str) -> None:
    Path("net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, images):\n"
        f"        return {output}\nbuild = Net\n"
    )
    line = fails(*CERTIFY, "--model", "net.py:build", "--out", "run")
    assert "the model's output is" in line
    assert "please report" not in line


@pytest.mark.parametrize("place", ["top", "build", "init", "copy", "forward"])
def test_a_model_that_ends_the_program_is_no_success(place: str) -> None:
    calls = {name: "sys.exit(0)" if name == place else "pass" for name in _PLACES}
    Path("net.py").write_text(_EXITING.format(**calls))
    line = fails(*CERTIFY, "--model", "net.py:build", "--out", "run")
    assert "SystemExit" in line or "sys.exit(0)" in line


_PLACES = ("top", "build", "init", "copy", "forward")
_EXITING = """
import sys, torch
{top}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(1)
        {init}
    def __deepcopy__(self, memo):
        {copy}
        return self
    def forward(self, images):
        {forward}
        return self.norm(images)[:, 0, :10, 0]
def build():
    {build}
    return Net().eval()
"""


@dataclass
class NaN:
    """A model with an undefined logit for bright images, for plain or for deformed ones."""

    deformed: bool

    def __call__(self, images: Tensor) -> Tensor:
        scores = rows(images).clone()
        # Only a deformed image has pixels from outside, which are zero.
        plain = images.amin(dim=(1, 2, 3)) == images.amax(dim=(1, 2, 3))
        bright = images[:, 0, 6, 6] > 0.9
        faulty = bright & (plain != self.deformed)
        scores[faulty, 3] = torch.nan
        return scores


class Named:
    """Images with sources; only that at place 2 is bright."""

    labels = (0, 1, 0, 1)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((1, 12, 12), 0.95 if index == 2 else 0.5), self.labels[index]

    def source(self, index: int) -> str:
        return f"photos/{index}.png"


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("stopping", [None, Stopping(radii=("1deg",))])
@pytest.mark.parametrize("deformed", [True, False])
def test_a_nan_names_its_image(
    deformed: bool, stopping: Stopping | None, together: int, tmp_path: Path
) -> None:
    g = SmoothedClassifier(NaN(deformed), Rotation(), Uniform(2.0), 5, batch_size=16)
    kind = "deformed" if deformed else "plain"
    words = rf"a logit of the model for the {kind} image 2 \(photos/2.png\) is NaN or infinite"
    results = certify_dataset(
        g, Named(), n=100, stopping=stopping, together=together, out=tmp_path / "run"
    )
    with pytest.raises(ModelError, match=words):
        list(results)
    assert len(load_run(tmp_path / "run")) == (2 if together == 1 else 0)


def test_a_nan_of_a_single_image() -> None:
    bright = Named()[2][0]
    g = SmoothedClassifier(NaN(deformed=True), Rotation(), Uniform(2.0), 5)
    with pytest.raises(LogitError, match="for the deformed image 7 is NaN"):
        g.certify(bright, n=100, index=7)
    with pytest.raises(LogitError, match="for the plain image 1 is NaN"):
        SmoothedClassifier(NaN(deformed=False), Rotation(), Uniform(2.0), 5).classify(
            [0.5 * bright, bright]
        )


@dataclass
class Faulty(Named):
    error: BaseException
    place: int

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == self.place:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("error", RAISED[:6], ids=lambda pair: type(pair[0]).__name__)
def test_whatever_a_dataset_raises_names_the_image(
    error: tuple[BaseException, str], place: int
) -> None:
    g = SmoothedClassifier(rows, Rotation(), Uniform(2.0), 5, batch_size=16)
    words = f"photos/{place}.png is not readable .{error[1]}"
    with pytest.raises(InputError, match=words):
        list(certify_dataset(g, Faulty(error[0], place), n=100))


def test_every_file_of_a_prediction_is_named() -> None:
    Path("net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, images):\n"
        "        scores = images[:, 0, :10, 0].clone()\n"
        "        if images.shape[-1] == 30:\n"
        "            scores[images[:, 0, 0, 0] == 0] = torch.nan\n"
        "        if images.shape[-1] == 32:\n"
        "            raise IndexError('too large')\n"
        "        return scores\n"
        "build = Net\n"
    )
    for name, side in (("a", 28), ("b", 30), ("c", 32)):
        Image.new("L", (side, side), 128).save(f"{name}.png")
    done = deformrs(
        *("predict", "a.png", "b.png", "c.png", "--model", "net.py:build", "--n", "20"),
        *SMOOTHING,
        code=1,
    )
    assert done.stdout.startswith("a.png: ")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "for the deformed image b.png is NaN" in errors[0]
    assert errors[1].startswith("error: c.png: the model's output is an error (IndexError")


MANY = "9" * 5000
UNREADABLE = [  # by click, whose exit code is 2
    *(["--n", "1e400"], ["--n", MANY], ["--n", "½"], ["--n", "0x10"], ["--n0", MANY]),
    *(["--max", MANY], ["--skip", MANY], ["--seed", MANY], ["--batch-size", MANY]),
    *(["--batch-size", "²"], ["--batch-size", "1_0"], ["--deformation", ""]),
]
IMPOSSIBLE = [
    *(["--n", "1" + "0" * 30], ["--seed", "-1"], ["--alpha", "nan"], ["--alpha", "inf"]),
    *(["--alpha", "1e-400"], ["--alpha", "-0"], ["--adaptive", "nan"]),
    *(["--radii", "1e999deg"], ["--radii", f"{MANY}deg"], ["--radii", "nan"]),
    *(["--radii", "٣deg"], ["--radii", "10deg;rm"], ["--region", "=" * 5000]),
    *(["--region", "rotation<=1e999deg"], ["--region", f"rotation<={MANY}deg"]),
    *(["--region", "rotation=3deg..1deg"], ["--channels", "0"]),
    *(["--resize", "1" + "0" * 30], ["--crop", "1" + "0" * 30]),
    *(["--mean", "nan", "--std", "1"], ["--mean", "0", "--std", "1e-400"]),
    *(["--device", "cpu\udcff"], ["--model", "m\udcff"], ["--data", "d\udcff"]),
    *(["--weights", "w\udcff"], ["--model", "m" * 5000], ["--out", "o" * 5000]),
    *(["--noise", f"uniform:{MANY}deg"], ["--noise", "uniform:1e-400deg"], ["--noise", "+"]),
    *(["--deformation", f"dct:{MANY}"], ["--deformation", "dct:nan"]),
]
OTHERS = [
    (["gallery", "--data", "digits", "--kind", "families", "--columns", "9" * 18], 1),
    (["gallery", "--data", "digits", "--kind", "fields", "--images", MANY], 2),
    (["quickstart", "--n", "9" * 18, "--out", "run"], 1),
    (["train", "--model", "small_cnn", "--epochs", "0"], 1),
    (["train", "--model", f"small_cnn:width={MANY}"], 1),
    (["train", "--model", "small_cnn", "--augment", MANY], 1),
]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        *(([*CERTIFY, "--model", "network", "--out", "run", *own], 2) for own in UNREADABLE),
        *(([*CERTIFY, "--model", "network", "--out", "run", *own], 1) for own in IMPOSSIBLE),
        *OTHERS,
    ],
    ids=lambda value: ascii(value)[-40:],
)
def test_options_that_no_one_means(arguments: list[str], code: int) -> None:
    if arguments[0] == "train":
        arguments = [*arguments, "--data", "digits", "--out", "run", *SMOOTHING]
    line = fails(*arguments, code=code)
    assert "please report" not in line
    assert len(line) < 2000
    assert not Path("run/certificates.jsonl").exists()
    assert not Path("run/model.json").exists()


DAMAGE = {
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "long": '{"num_classes": ' + "9" * 5000 + "}",
    "cut off": '{"noise": {',
    "null": "null",
    "list": "[1]",
    "text": '"abc"',
    "empty": "",
    "nan": '{"noise": NaN, "alpha": NaN, "method": NaN, "options": NaN, "command": "train"}',
    "surrogate": '{"command": "train", "options": "\\ud800", "\\ud800": 1}',
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "file", ["config.json", "model.json", "training.json", "names.json", "a.toml", "recipe.toml"]
)
def test_damaged_files_are_named(file: str, damage: str) -> None:
    folder = Path("received")
    folder.mkdir()
    text = DAMAGE[damage]
    path = folder / file
    path.write_text(f"a = {text}" if file.endswith("toml") else text)
    certify = [*CERTIFY, "--out", "run"]
    attempts: dict[str, list[list[str | Path]]] = {
        "config.json": [["report", folder], ["predict", "a.png", "--run", folder]],
        "model.json": [[*certify, "--model", folder]],
        "training.json": [[*certify, "--model", folder]],
        "names.json": [[*certify, "--model", "network", "--class-names", path]],
        "a.toml": [["sweep", path]],
        "recipe.toml": [
            ["train", "--data", "digits", "--model", "small_cnn", "--recipe", path, *SMOOTHING]
        ],
    }
    for attempt in attempts[file]:
        out = ["--out", "run"] if attempt[0] == "train" else []
        line = fails(*attempt, *out)
        assert "please report" not in line
        assert "received" in line
        assert len(line) < 2000


OPTIONS = {"model": "network", "data": "digits", "deformation": "rotation", "noise": "uniform:1"}


@pytest.mark.parametrize("value", [3, None, ["a"], {"a": 1}])
@pytest.mark.parametrize("key", OPTIONS)
def test_options_of_a_run_have_their_types(key: str, value: object) -> None:
    Path("run").mkdir()
    config = {"noise": {}, "alpha": 0.1, "method": "anytime", "options": OPTIONS | {key: value}}
    Path("run/config.json").write_text(json.dumps(config))
    line = fails("predict", "a.png", "--run", "run")
    assert line.startswith(f"error: run/config.json is damaged (the option {key} is a ")


@pytest.mark.parametrize("value", ["abc", ["a", 3], [["a"]], [" "], 5, {"a": 1}])
def test_class_names_of_a_model_are_texts(value: object) -> None:
    about = json.loads(Path("network/model.json").read_text())
    Path("network/model.json").write_text(json.dumps(about | {"class_names": value}))
    line = fails(*CERTIFY, "--model", "network", "--out", "run")
    assert line.startswith("error: network/model.json is damaged")


def test_an_integer_beyond_all_floats_is_no_number() -> None:
    assert is_real(10**300)
    assert not is_real(10**400)
    with pytest.raises(InputError, match="alpha is 10*; it must lie in"):
        check_alpha(10**400)


def test_other_exceptions_are_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (GeneratorExit(), UnprintableError(), ValueError("a\x1b[2J\nb")):
        monkeypatch.setattr("deformrs.cli.pack.runs_in", lambda folder, e=error: raising(e)())
        assert f"unexpected ({type(error).__name__}" in fails("pack", "run")
    assert first_line(UnprintableError()) == "UnprintableError"
    assert reason_of(ValueError("a\nb")) == "ValueError: a"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DEFORMRS_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InputError, match="let DEFORMRS_DATA name a folder"):
        default_root()


@pytest.mark.skipif(os.name != "posix", reason="streams are closed by a POSIX shell")
def test_streams_that_are_closed_or_full(tmp_path: Path) -> None:
    """Neither a traceback, nor output in the file that takes the place of a closed stream."""
    version = " ".join([sys.executable, "-m", "deformrs", "--version"])
    script = f"""
        {version} >&- 2>&- <&-; echo closed $?
        {version} >/dev/full; echo full $?
        {{ {version}; echo gone $? >&2; }} | true
        mkdir here; cd here; rmdir ../here; {version}; echo removed $?
    """
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=120,
    )
    assert done.stdout.split("\n")[:3] == ["closed 0", "full 1", "removed 1"]
    lines = done.stderr.strip().split("\n")
    assert sum("No space left" in line for line in lines) == 1
    assert sum("the working directory is removed" in line for line in lines) == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a pipe breaks otherwise elsewhere")
def test_a_reader_that_goes_ends_the_command_quietly(tmp_path: Path) -> None:
    stored(tmp_path / "runs/a", [Entry(0, 0, 990)], on_disk=True)
    with subprocess.Popen(
        command("pack", "runs/a"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(120) == 1
