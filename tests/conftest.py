"""Defines the family of docs/adding_a_deformation.md, so that every generic test knows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

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
