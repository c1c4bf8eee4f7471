"""Folders as training leaves them behind."""

from __future__ import annotations

import json
from pathlib import Path

from deformrs.config import Config, ConfigValue
from deformrs.data.preparation import Preparation
from deformrs.models import SmallCNN, save_model

QUICK = ("--n", "40", "--n0", "20", "--max", "2", "--device", "cpu")


def trained(
    folder: Path,
    split: str | None = "train",
    *,
    finished: bool = True,
    digest: ConfigValue = None,
    **options: str | None,
) -> Path:
    """A folder as `deformrs train`, started one folder above it, leaves it behind."""
    given: Config = {
        "model": "small_cnn",
        "data": "digits",
        "data_root": None,
        "split": "train",
        "deformation": "rotation",
        "noise": "uniform:40deg",
        "padding": "border",
        "relative_to": "..",
    }
    folder.mkdir()
    given.update(options)
    seen: Config = {"split": split, "sha256": digest, "name": given["data"]}
    about: Config = {"command": "train", "options": given, "data": seen}
    (folder / "training.json").write_text(json.dumps(about))
    if finished:
        for place, seed in ((folder, 1), (folder / "best", 2)):
            save_model(place, SmallCNN(width=4, seed=seed).eval(), Preparation(channels=1))
    return folder
