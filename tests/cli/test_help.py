"""What --help shows works as typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import ENVIRONMENT, deformrs
from deformrs.cli import commands
from deformrs.data import load_data
from deformrs.data.preparation import Preparation

VERBS = list(commands.commands)
ELSEWHERE = {"timm:resnet18", "cifar10", "results/cifar10", "photos/"}
"""What an example may need that is not here: downloads, and images of one's own."""
SHORTER = {"quickstart": ["--epochs", "2"], "train": ["--epochs", "2"]}


def examples(verb: str) -> list[list[str]]:
    """The command lines under "Example" in a verb's help."""
    shown = deformrs(verb, "--help", cwd=Path.cwd()).stdout
    _, _, block = shown.partition("Example")
    lines = re.split(r"\n\s*\n", block.partition("\n")[2])[0]
    joined = re.sub(r"\\\n\s*", " ", lines)
    return [shlex.split(line)[1:] for line in joined.strip().splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a first, short quickstart has been, with an image of one's own."""
    folder = tmp_path_factory.mktemp("place")
    small = ("--digits", "12", "--epochs", "2", "--n", "300")
    deformrs("quickstart", *small, cwd=folder)
    pixels, _ = load_data("digits", Preparation())[3]
    Image.fromarray((255 * pixels[0]).astype(np.uint8)).save(folder / "digit.png")
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example_that_works_as_typed(verb: str, place: Path) -> None:
    typed = [line for line in examples(verb) if not ELSEWHERE & set(line)]
    assert typed
    assert typed[0][0] == verb
    for arguments in typed:
        arguments += SHORTER.get(arguments[0], [])  # the same in less time
        done = deformrs(*arguments, cwd=place)
        assert done.stdout.strip()
        assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["report", "-h"], ["pack", "-h"]])
def test_help_needs_no_torch(arguments: list[str]) -> None:
    code = f"import sys; from deformrs.cli import main; sys.argv = ['deformrs', *{arguments}]\n"
    code += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=ENVIRONMENT)
