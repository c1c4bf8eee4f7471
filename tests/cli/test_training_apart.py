"""A training by a command of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import pytest

from deformrs.cli.arguments import DataOptions, SmoothingOptions, StartOptions, TrainingOptions
from deformrs.cli.train import train
from deformrs.cli.training_process import train_apart, train_arguments
from deformrs.errors import ModelError

Options = TypeVar("Options")
WORDS = {
    "model": "timm:resnet18",
    "weights": "a b.pth",
    "recipe": "paper",
    "augment": "none",
    "device": "cpu",
    "strategy": "ddp_find_unused_parameters_true",
}
LITERALS = {"interpolation": "bicubic", "precision": "bfloat16", "compile": "yes", "hold": "no"}
NUMBERS: dict[object, object] = {int: 2, float: 0.25, tuple: (0.5, 0.25)}


def other_than_default(kind: type[Options]) -> Options:
    """Options of which none is as it is by default."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        default = getattr(kind, name, None)
        if hint is bool:
            values[name] = not default
        elif name in WORDS | LITERALS:
            values[name] = (WORDS | LITERALS)[name]
        else:
            part = next(part for part in get_args(hint) or (hint,) if part is not type(None))
            values[name] = NUMBERS[get_origin(part) or part]
        assert values[name] != default, name
    return kind(**values)


def test_a_training_apart_is_asked_for_the_same() -> None:
    """What `deformrs train` understands is what was meant, for every option."""
    start, training = other_than_default(StartOptions), other_than_default(TrainingOptions)
    data = DataOptions("photos", "train", "kept")
    smoothing = SmoothingOptions("rotation", "uniform:30deg", "border")
    arguments = train_arguments(start, data, smoothing, training, Path("the run"))
    understood = train.make_context("train", arguments).params
    for options in (start, smoothing, training):
        for name, value in vars(options).items():
            assert understood.pop(name) == value, name
    assert understood == {"data": "photos", "data_root": "kept", "out": Path("the run")}
    few = train_arguments(
        StartOptions("resnet18"), DataOptions("mnist"), smoothing, TrainingOptions(), Path("a")
    )
    assert few == [
        *("--model=resnet18", "--data=mnist", "--deformation=rotation", "--noise=uniform:30deg"),
        *("--padding=border", "--out=a"),
    ]


def test_why_it_failed_is_told(tmp_path: Path) -> None:
    asked = (
        StartOptions("small_cnn"),
        DataOptions(str(tmp_path / "nowhere")),
        SmoothingOptions("rotation", "uniform:30deg"),
        TrainingOptions(),
        tmp_path / "run",
    )
    with pytest.raises(
        ModelError, match=r"run is not finished \(the data is '.*nowhere'"
    ) as raised:
        train_apart(*asked)
    assert "error: " not in str(raised.value)
