"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError, first_line
from deformrs.models.optional_dependencies import import_extra
from deformrs.models.types import NetworkSpec, ResolvedSource, in_batches
from deformrs.models.weights import require_file
from deformrs.runs.files import file_digest

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_LOCATION = b"\x0a\x08location\x12"  # an entry of external data, as protobuf writes its key


def load_onnx(path: Path, device: torch.device) -> ResolvedSource:
    """Load a `.onnx` file from N x C x H x W to logits. A fixed H x W becomes the crop."""
    require_file("the ONNX file", path)
    runtime = import_extra("onnxruntime")
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
    files: Config = {file.name: file_digest(file) for file in [path, *_external(path)]}
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
        raise InputError(
            f"the ONNX file {path}",
            f"unreadable ({first_line(error)})",
            "must be a model that ONNX Runtime can run",
            "export it again",
        ) from error


def _external(path: Path) -> list[Path]:
    """Return the files of its folder that hold its weights."""
    content = path.read_bytes()
    files = set()
    for match in re.finditer(re.escape(_LOCATION), content):
        length, start = content[match.end()], match.end() + 1
        if length >= 128:  # a second digit, in base 128
            length, start = length - 128 + 128 * content[start], start + 1
        files.add(path.parent / content[start : start + length].decode(errors="replace"))
    return sorted(file for file in files if file.is_file())


def _unfit(path: Path, got: str, required: str) -> InputError:
    return InputError(f"the ONNX file {path}", got, f"must be for {required}", "export it so")
