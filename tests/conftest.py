"""Defines the family of docs/adding_a_deformation.md, so that every generic test knows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from deformrs.models import SmallCNN, save_model
from deformrs.preparation import Preparation

ROOT = Path(__file__).parent.parent


def python_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)


# Pictures are small here: threads would cost more than they bring, most of all on a busy machine.
torch.set_num_threads(1)

exec(  # the tutorial's first block is a class definition and nothing else
    compile(python_blocks(ROOT / "docs/adding_a_deformation.md")[0], "tutorial", "exec"),
    {"__name__": "tutorial"},
)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A folder with a small network for digits, as training leaves it behind."""
    folder = tmp_path / "network"
    save_model(folder, SmallCNN(width=4, seed=1).eval(), Preparation(channels=1))
    return folder
