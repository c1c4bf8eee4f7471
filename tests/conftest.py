"""Defines the family of docs/adding_a_deformation.md, so that every generic test knows it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import QUICK, run_inside
from deformrs import plan
from deformrs.data.preparation import Preparation
from deformrs.models import SmallCNN, save_model

ROOT = Path(__file__).parent.parent


def python_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)


# Images are small here: threads would cost more than they bring, most of all on a busy machine.
torch.set_num_threads(1)

# A job in the background inherits deaf ears, but some tests are about Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

exec(  # the tutorial's first block is a class definition and nothing else
    compile(python_blocks(ROOT / "docs/adding_a_deformation.md")[0], "tutorial", "exec"),
    {"__name__": "tutorial"},
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the two files that mostly wait beside others: one begins, one comes after most."""
    places = {"test_ray.py": -1.0, "test_ray_cluster.py": 0.7 * len(items)}
    order = {item: places.get(item.path.name, k) for k, item in enumerate(items)}
    items.sort(key=order.__getitem__)


FRESH_SEED = plan.fresh_seed


@pytest.fixture(scope="session", autouse=True)
def _repeatable_seeds() -> Iterator[None]:
    """Let what draws its seed in this process draw 0, so that a failure can be repeated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "fresh_seed", lambda: 0)
        yield


@pytest.fixture
def random_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds of the operating system, as for users."""
    monkeypatch.setattr(plan, "fresh_seed", FRESH_SEED)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures, for tests that look at the rest: drawing takes most of the time."""
    monkeypatch.setattr("deformrs.report.document._draw", lambda *args: None)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A folder with a small network for digits, as training leaves it behind."""
    folder = tmp_path / "network"
    save_model(folder, SmallCNN(width=4, seed=1).eval(), Preparation(channels=1))
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright left halves and bright right halves, to train on and to test."""
    folder = tmp_path_factory.mktemp("data") / "halves"
    generator = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 6)):
        for index in range(count):
            for place, name in enumerate(("left", "right")):
                pixels = generator.integers(0, 90, (16, 16), dtype=np.uint8)
                half = slice(0, 8) if place == 0 else slice(8, 16)
                pixels[:, half] += 120
                path = folder / split / name / f"{index}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    return folder


@pytest.fixture(scope="session")
def usual(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with the options in QUICK. Tests leave it as it is."""
    out = tmp_path_factory.mktemp("usual") / "run"
    run_inside("train", "--data", data, *QUICK, "--out", out)
    return out
