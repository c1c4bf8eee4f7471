"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError, first_line, install_command
from deformrs.limits import open_file
from deformrs.models.optional_dependencies import import_extra
from deformrs.models.types import NetworkSpec, ResolvedSource, in_batches
from deformrs.models.weights import require_file
from deformrs.runs.files import file_digest

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_OLDEST = (1, 24)
"""Earlier releases of ONNX Runtime read weights through `..`, absolute paths and links."""

# The fields of ONNX's messages that lead to a tensor, and to where its data lie.
_FIELDS: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "TensorProto": {13: "StringStringEntryProto"},
    "StringStringEntryProto": {1: "key", 2: "value"},
}
_MAX_DEPTH, _MAX_FIELDS, _MAX_NAME = 100, 5_000_000, 4096  # protobuf's own depth


def load_onnx(path: Path, device: torch.device) -> ResolvedSource:
    """Load a `.onnx` file from N x C x H x W to logits. A fixed H x W becomes the crop.

    Guarantee: only this file and files in its folder or below are read, and `about` has the digest
    of each.
    """
    require_file("the ONNX file", path)
    runtime = import_extra("onnxruntime")
    _check_version(str(runtime.__version__))
    files: Config = {path.name: file_digest(path)}
    for name in external_files(path):
        files[name] = file_digest(path.parent / name, links=False)
    session = _session(runtime, path, device)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise _unfit(path, f"of {len(inputs)} inputs and {len(outputs)} outputs", "one of each")
    shape, kind = inputs[0].shape, inputs[0].type
    if kind not in _TYPES or len(shape) != 4 or shape[1] not in (1, 3):
        raise _unfit(path, f"for {kind} of shape {shape}", "float images N x C x H x W, C 1 or 3")
    fixed = all(isinstance(length, int) for length in shape[2:])
    spec = NetworkSpec(
        _Session(session, shape[0] if isinstance(shape[0], int) else None, _TYPES[kind]),
        Preparation(crop=(shape[2], shape[3]) if fixed else None, channels=shape[1]),
    )
    about: Config = {"files": files, "onnxruntime": str(runtime.__version__)}
    return ResolvedSource(spec, about, frozen_graph=True)


class _Session(nn.Module):
    """An ONNX session as a module. It takes images on any device."""

    def __init__(self, session: Any, batch: int | None, dtype: type) -> None:
        super().__init__()
        self.session, self.batch, self.dtype = session, batch, dtype
        self.input, self.output = session.get_inputs()[0].name, session.get_outputs()[0].name

    def forward(self, images: Tensor) -> Tensor:
        return in_batches(self._run, images, self.batch)

    def _run(self, images: Tensor) -> Tensor:
        array: NDArray[np.floating] = images.cpu().numpy().astype(self.dtype)
        try:
            (logits,) = self.session.run([self.output], {self.input: array})
        except Exception as error:  # the runtime's errors have no class of their own
            raise ModelError(
                "the output of the ONNX file",
                f"an error ({first_line(error)})",
                f"must be logits for images of shape {array.shape}",
                "prepare images with the channels and the size that it accepts",
            ) from error
        return torch.from_numpy(np.asarray(logits)).to(images.device)


def _session(runtime: ModuleType, path: Path, device: torch.device) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # errors are raised, and need not be printed as well
    provider: Any = "CPUExecutionProvider"
    if device.type == "cuda":
        # Neither TF32 nor algorithms chosen by a timing.
        settings = {
            "device_id": device.index or 0,
            "use_tf32": 0,
            "cudnn_conv_algo_search": "HEURISTIC",
        }
        provider = ("CUDAExecutionProvider", settings)
        if provider[0] not in runtime.get_available_providers():
            raise InputError(
                "the device",
                f"{device} for an ONNX file",
                "needs an ONNX Runtime that was built for CUDA",
                "pip install onnxruntime-gpu, or use the device cpu",
            )
    elif device.type != "cpu":
        raise InputError("the device", f"{device} for an ONNX file", "must be cpu or cuda", "cpu")
    try:
        return runtime.InferenceSession(str(path), options, providers=[provider])
    except Exception as error:  # the runtime's errors have no class of their own
        raise _unreadable(path, first_line(error)) from error


def _check_version(version: str) -> None:
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST:
        raise InputError(
            "the package onnxruntime",
            version,
            f"must be {'.'.join(map(str, _OLDEST))} or newer: with older ones, a model can take "
            "any file of this machine for its weights",
            install_command("onnxruntime", upgrade=True),
        )


def external_files(path: Path) -> list[str]:
    """Return the files that hold weights of an ONNX file, relative to its folder.

    Guarantee: each is a regular file in that folder or below it, reached through no link.
    """
    folder = path.parent
    try:
        with open_file(path) as file:
            locations = _locations(file)
    except InputError:
        raise
    except ValueError as error:
        raise _unreadable(path, error) from None
    names = []
    for location in sorted(locations):
        inner = Path(os.path.normpath(location))
        outside = inner.is_absolute() or inner.drive or ".." in inner.parts or "\0" in location
        # A folder on the way may be a link.
        if outside or not (folder / inner).parent.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"the weights {location!r} of the ONNX file {path}",
                "outside its folder",
                "must lie in it or below",
                "move them there, and export the model again",
            )
        try:
            open_file(folder / inner, links=False).close()
        except OSError as error:
            raise _unreadable(path, f"its weights {location!r}: {error.strerror}") from None
        names.append(inner.as_posix())
    return names


def _locations(file: BinaryIO) -> set[str]:
    """Return the locations of external data anywhere in a model; ValueError if it is damaged.

    The fields of protobuf's wire format are read one after the other, into messages that may hold
    a tensor and past all others.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    messages = [("ModelProto", size)]  # with their ends, each inside the one before
    entry: dict[str, list[str]] = {}
    locations: set[str] = set()
    position = 0
    for _ in range(_MAX_FIELDS):
        while messages and position == messages[-1][1]:
            kind, _ = messages.pop()
            if kind == "StringStringEntryProto" and "location" in entry.get("key", ()):
                locations.update(entry.get("value", ("",)))
        if not messages:
            return locations
        kind, end = messages[-1]
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**29 or wire not in (0, 1, 2, 5):
            raise ValueError(f"it has a field {number} of type {wire}")
        length = {0: 0, 1: 8, 5: 4}[wire] if wire != 2 else _varint(file)
        if wire == 0:
            _varint(file)
        position = file.tell()
        if position + length > end:
            raise ValueError("a part of it is longer than the whole")
        child = _FIELDS[kind].get(number) if wire == 2 else None
        if child is None:
            position = file.seek(length, os.SEEK_CUR)
        elif child in _FIELDS:
            messages.append((child, position + length))
            entry = {}
            if len(messages) > _MAX_DEPTH:
                raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        elif length > _MAX_NAME:
            raise ValueError(f"a name of {length:,} bytes")
        else:
            entry.setdefault(child, []).append(file.read(length).decode())
            position += length
    raise ValueError(f"it has more than {_MAX_FIELDS:,} parts")


def _varint(file: BinaryIO) -> int:
    """Return the next integer in base 128, the least digit first."""
    value = 0
    for place in range(10):
        byte = file.read(1)
        if not byte:
            raise ValueError("it is cut off")
        value |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            return value
    raise ValueError("it has an integer without end")


def _unreadable(path: Path, reason: object) -> InputError:
    return InputError(
        f"the ONNX file {path}",
        f"unreadable ({reason})",
        "must be a model that ONNX Runtime can run",
        "export it again",
    )


def _unfit(path: Path, got: str, required: str) -> InputError:
    return InputError(f"the ONNX file {path}", got, f"must be for {required}", "export it so")
