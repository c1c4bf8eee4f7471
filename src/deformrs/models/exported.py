"""Programs written by `torch.export.save`.

Such a file can hold pickles, compiled libraries and expressions that torch evaluates while it loads
them: it is code, and is loaded only where the user says that it is trusted.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError, first_line
from deformrs.execution import read_logits
from deformrs.models.optional_dependencies import quiet
from deformrs.models.types import (
    NetworkSpec,
    ResolvedSource,
    in_batches,
    require_trust,
)
from deformrs.models.weights import check_not_torchscript, require_file
from deformrs.runs.files import file_digest

_SWITCHES = ("train", "training", "dropout_p", "dropout")


def load_exported(path: Path, device: torch.device, trust_code: bool) -> ResolvedSource:
    """Load a `.pt2` file with one input, N x C x H x W. A fixed H x W becomes the crop.

    Guarantee: without `trust_code` the file is not opened.
    """
    require_file("the exported program", path)
    require_trust(
        trust_code,
        f"the exported program {path}",
        "a program that can run any code while it is loaded",
        "or convert it to ONNX, or build the network in a Python file of your own and save its "
        "weights as .safetensors",
    )
    program = _program(path)
    check_evaluation(path, program)
    shape, dtype = _input(path, program)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    batch, channels, height, width = (int(n) if isinstance(n, int) else None for n in shape)
    fixed = height is not None and width is not None
    spec = NetworkSpec(
        _Program(program.module(), batch, dtype),
        Preparation(crop=(height, width) if fixed else None, channels=channels),  # type: ignore[arg-type]
    )
    about = {"files": {path.name: file_digest(path)}, "torch": str(torch.__version__)}
    return ResolvedSource(spec, about, frozen_graph=True)  # type: ignore[arg-type]


class _Program(nn.Module):
    """An exported program as a module. Its mode was chosen when it was exported."""

    def __init__(self, program: nn.Module, batch: int | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.program, self.batch, self.dtype = program, batch, dtype
        self.train(False)

    def train(self, mode: bool = True) -> _Program:
        for part in (self, *self.program.modules()):
            part.training = mode  # the train() of a program raises
        return self

    def forward(self, images: Tensor) -> Tensor:
        return in_batches(self._run, images.to(self.dtype), self.batch)

    def _run(self, images: Tensor) -> Tensor:
        return read_logits(self.program(images))


def check_evaluation(path: Path, program: ExportedProgram) -> None:
    """Raise if a program is not a fixed function: dropout, batch statistics, random numbers."""
    if program.graph_signature.buffers_to_mutate:
        raise _training(path, "writes to its buffers")
    images = set(program.graph_signature.user_inputs)
    dependent: set[Any] = set()  # nodes that depend on the images
    for node in program.graph.nodes:
        if node.name in images or not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
        operator = node.target
        if not isinstance(operator, torch._ops.OpOverload):
            continue
        names = [argument.name for argument in operator._schema.arguments]
        given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
        switches = [name for name in _SWITCHES if name in names]
        on = any(given.get(name) for name in switches)
        if torch.Tag.nondeterministic_seeded in operator.tags and (on or not switches):
            raise _training(path, f"draws random numbers in {operator}")
        if on and node in dependent:  # statistics of weights, which some networks take, are fixed
            raise _training(path, f"takes the statistics of a batch in {operator}")


def _program(path: Path) -> ExportedProgram:
    try:
        with quiet("torch.export", "torch._export"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")  # torch 2.11
            return torch.export.load(path)
    except Exception as error:  # a damaged program can raise anything
        check_not_torchscript(path)
        raise InputError(
            f"the exported program {path}",
            f"unreadable ({first_line(error)[:200]})",
            "must be written by torch.export.save of a torch like this one",
            f"export it again with torch {torch.__version__}",
        ) from error


def _input(path: Path, program: ExportedProgram) -> tuple[tuple[Any, ...], torch.dtype]:
    names = program.graph_signature.user_inputs
    values = [node.meta["val"] for node in program.graph.nodes if node.name in names]
    if len(names) != 1 or not isinstance(values[0], Tensor) or values[0].dim() != 4:
        raise InputError(
            f"the exported program {path}",
            f"a function of {len(names)} inputs of shape "
            + str([tuple(getattr(v, "shape", ())) for v in values]),
            "must have one, N x C x H x W",
            "export the classifier of one batch of images",
        )
    return tuple(values[0].shape), values[0].dtype


def _training(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"the exported program {path}",
        f"not a fixed function (it {reason})",
        "must be exported in evaluation mode",
        "call model.eval() before torch.export.export",
    )
