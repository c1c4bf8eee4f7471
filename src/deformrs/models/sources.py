"""`load_model`: from a source, as typed on the command line, to a classifier to be certified."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from deformrs.checks import check_choice
from deformrs.config import Config
from deformrs.data.labels import check_class_names
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, nearest, quoted
from deformrs.execution import usable_device
from deformrs.models.exported import load_exported
from deformrs.models.hugging_face import load_hugging_face
from deformrs.models.inference import (
    Precision,
    PrecisionChoice,
    automatic_precision,
    fold_batch_norm,
)
from deformrs.models.networks import load_library_network, of_library
from deformrs.models.onnx import load_onnx
from deformrs.models.robustbench import load_robustbench
from deformrs.models.saved import load_factory, load_saved, of_file
from deformrs.models.types import (
    Classifier,
    LoadedModel,
    NetworkSpec,
    ResolvedSource,
    check_normalisation,
)
from deformrs.models.weights import read_state, require_file, state_digest

FORMS = (
    "a run folder, FILE.py:FUNCTION, FILE.onnx, FILE.pt2, timm:NAME, torchvision:NAME, hf:NAME, "
    "robustbench:NAME"
)
_LIBRARIES = ("timm", "torchvision", "hf", "robustbench")
_FILES = (".onnx", ".pt2")
_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".ts", ".torchscript", ".pkl")


def load_model(
    source: str | Path | NetworkSpec | nn.Module,
    *,
    weights: Path | None = None,
    preparation: Preparation | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    precision: PrecisionChoice = "float32",
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    class_names: Sequence[str] | None = None,
    download: bool = True,
) -> LoadedModel:
    """Return the classifier that `source` names, ready to be certified.

        runs/quickstart       a folder that training wrote
        mymodel.py:build      a function that returns a network, or a NetworkSpec
        model.onnx            run by ONNX Runtime
        model.pt2             written by torch.export.save; needs trust_code
        timm:resnet18         a network of that library, its weights downloaded or given
        torchvision:resnet18  likewise
        hf:ORG/NAME           an image classifier of Hugging Face; also hf:FOLDER
        robustbench:NAME      of its CIFAR networks; also robustbench:cifar100/Linf/NAME

    A module, or a NetworkSpec with its normalisation, is copied, and evaluated whatever its mode.

    `weights` is a .safetensors or .pth file with a state dict. For mymodel.py:build it may be that
    of a run folder, whose preprocessing then applies. `mean` and `std` override those of the
    source; of `preparation`, every field that is not None does, and `interpolation` if `resize` is
    given or it is not the default "bilinear". `class_names`, one for each output in their order,
    override the source's. Without `download`, published weights are only taken from the cache.

    Guarantee: without `trust_code` no code is executed but that of the Python file that `source`
    names. With it, a .pt2 file is loaded, which can run any code, and so is the Python file that a
    run folder names: pass it only for files from people you trust.

    `precision` "auto" is bfloat16 if the device computes in it and the network's logits hardly
    change in it, else float32. Batch norms are folded into the layers before them where that
    leaves the function unchanged, see `fold_batch_norm`. `about` records both, because the
    certificate is for the module that is executed.

    >>> import tempfile
    >>> from deformrs.models import SmallCNN, save_model
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_model(folder, SmallCNN(), Preparation(channels=1))
    >>> load_model(str(folder)).preparation.words
    'grey'
    """
    check_choice("precision", precision, get_args(PrecisionChoice))
    check_normalisation(mean, std)
    names = None if class_names is None else check_class_names(class_names)
    place = usable_device(device)
    if weights is not None:
        weights = Path(weights)
        require_file("the weights file", weights)
    if isinstance(source, nn.Module):
        source = NetworkSpec(source)
    if isinstance(source, NetworkSpec):
        name = f"a {type(source.module).__name__}"
        _check_no_weights(name, weights)
        own_copy = dataclasses.replace(source, module=copy.deepcopy(source.module))
        resolved = ResolvedSource(own_copy, {"files": {}})
    elif not isinstance(source, str | Path):
        raise InputError(
            "the model",
            repr(source),
            "must be a source as text, a module or a NetworkSpec",
            "give a function to SmoothedClassifier, and that to certify_dataset",
        )
    else:
        name = str(source)
        described = preparation is not None and mean is not None
        resolved = _resolve(name, weights, place, described, trust_code, download)
    if resolved.frozen_graph and precision not in ("auto", "float32"):
        raise InputError(
            "precision",
            repr(precision),
            f"cannot be chosen for {name}, whose computation is fixed",
            "use float32, which runs it as it is",
        )
    spec = resolved.spec
    if mean is not None:
        spec = dataclasses.replace(spec, mean=mean, std=std)
    if preparation is not None:
        spec = dataclasses.replace(spec, preparation=_override(spec.preparation, preparation))
    about: Config = {"source": name, **resolved.about}
    about |= {} if resolved.name is None else {"name": resolved.name}
    chosen: Precision = "float32"
    if not resolved.frozen_graph:
        about["state_sha256"] = state_digest(spec.module.state_dict())
        spec, batch_norms = fold_batch_norm(spec)
        about |= {} if batch_norms is None else {"batch_norm": batch_norms}
        chosen = automatic_precision(spec, place) if precision == "auto" else precision
    about |= {
        "mean": None if spec.mean is None else list(spec.mean),
        "std": None if spec.std is None else list(spec.std),
        "precision": chosen,
    }
    classifier = Classifier(spec, getattr(torch, chosen)).eval().requires_grad_(False)
    if resolved.frozen_graph:
        # Its state dict, which may hold no weights, then tells one file from another.
        mark = hashlib.sha256(json.dumps(about["files"]).encode()).digest()
        classifier.register_buffer("mark", torch.tensor(list(mark), dtype=torch.uint8))
    else:
        spec.module.to(getattr(torch, chosen))
        if spec.channels_last:
            spec.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return LoadedModel(classifier.to(place), spec.preparation, names or spec.class_names, about)


def check_source(source: str) -> None:
    """Raise if this has none of the forms of a model; one of the right form may not exist."""
    library, colon, _ = source.partition(":")
    path = Path(source)
    known = (bool(colon) and library in _LIBRARIES) or of_file(source)
    if not known and path.suffix not in _FILES and not (source and path.is_dir()):
        remedy = "there is no such file or folder; for "
        if "/" in source:
            remedy += f"Hugging Face write {quoted(f'hf:{source}')}"
        else:
            timm, torchvision = (
                quoted(f"{library}:{source or 'resnet18'}") for library in ("timm", "torchvision")
            )
            remedy += (
                f"a network of a library write {timm} or {torchvision}, with --weights FILE if the "
                "weights are yours"
            )
        raise unknown_source(source, FORMS, _LIBRARIES, remedy)


def _resolve(
    source: str,
    weights: Path | None,
    device: torch.device,
    described: bool,
    trust_code: bool,
    download: bool,
) -> ResolvedSource:
    check_source(source)
    path = Path(source)
    if of_library(source):
        return load_library_network(source, weights, download)
    if of_file(source):
        return load_factory(source, weights)
    if source.startswith("robustbench:"):
        return load_robustbench(source.removeprefix("robustbench:"), weights, download)
    _check_no_weights(source, weights)
    if source.startswith("hf:"):
        return load_hugging_face(source.removeprefix("hf:"), described, download)
    if path.suffix == ".onnx":
        return load_onnx(path, device)
    if path.suffix == ".pt2":
        return load_exported(path, device, trust_code)
    return load_saved(path, trust_code)


def _check_no_weights(source: str, weights: Path | None) -> None:
    if weights is not None:
        raise InputError(
            "weights", weights, f"cannot be given for {source}, which has its own", "leave it out"
        )


def unknown_source(source: str, forms: str, libraries: Iterable[str], fallback: str) -> InputError:
    """Return the error for a source of none of these forms; `fallback` is the last remedy.

    Raise another if it is a file that holds neither a model nor weights.
    """
    library, colon, name = source.partition(":")
    path = Path(source)
    close = nearest(library.lower(), libraries)
    if path.suffix == ".py":
        remedy = f"name the function that builds it, e.g. {source}:build"
    elif colon and close:
        remedy = f"did you mean {close}:{name}?"
    elif path.suffix not in _FILES and (path.suffix in _WEIGHTS or path.is_file()):
        if path.is_file():
            read_state(path)  # raises, saying what to do, if there are no weights in it
        remedy = (
            f"weights need a network: --model net.py:build --weights {quoted(source)}, or --model "
            f"timm:resnet18 --weights {quoted(source)}"
        )
    else:
        remedy = fallback
    return InputError("the model", repr(source), f"must be one of {forms}", remedy)


def _override(source: Preparation, given: Preparation) -> Preparation:
    default = given.resize is None and given.interpolation == Preparation().interpolation
    return Preparation(
        resize=source.resize if given.resize is None else given.resize,
        crop=source.crop if given.crop is None else given.crop,
        interpolation=source.interpolation if default else given.interpolation,
        channels=source.channels if given.channels is None else given.channels,
        max_pixels=given.max_pixels,
    )
