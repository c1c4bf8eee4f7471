"""A finished training that tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from inside import run_inside
from training_options import QUICK


@pytest.fixture(scope="session")
def usual(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with the options in QUICK. Tests leave it as it is."""
    out = tmp_path_factory.mktemp("usual") / "run"
    run_inside("train", "--data", data, *QUICK, "--out", out)
    return out
