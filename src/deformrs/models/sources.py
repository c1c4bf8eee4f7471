"""From a source, as people write it, to a classifier that is ready to be certified."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from pathlib import Path

import torch

from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.execution import usable_device
from deformrs.models.exported import load_exported
from deformrs.models.folding import fold_known
from deformrs.models.hugging_face import load_hugging_face
from deformrs.models.onnx import load_onnx
from deformrs.models.precision import (
    Precision,
    PrecisionAsked,
    automatic_precision,
    check_precision,
)
from deformrs.models.saved import load_saved, load_users, of_file
from deformrs.models.timm import load_timm
from deformrs.models.torchvision import load_torchvision
from deformrs.models.types import (
    Classifier,
    LoadedModel,
    NetworkSpec,
    ResolvedSource,
    check_normalisation,
)
from deformrs.models.weights import require_file, state_digest

FORMS = "a run folder, FILE.py:FUNCTION, FILE.onnx, FILE.pt2, timm:NAME, torchvision:NAME, hf:NAME"
_LIBRARIES = ("timm", "torchvision", "hf")
_FILES = (".onnx", ".pt2")
_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


def load_model(
    source: str,
    *,
    weights: Path | None = None,
    preparation: Preparation | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    precision: PrecisionAsked = "float32",
    device: torch.device | str = "cpu",
    trust_code: bool = False,
) -> LoadedModel:
    """The classifier that `source` names.

        runs/quickstart       a folder that training wrote
        mymodel.py:build      a function that returns a network, or a NetworkSpec
        model.onnx            run by ONNX Runtime
        model.pt2             written by torch.export.save
        timm:resnet18         a network of that library, its weights downloaded or given
        torchvision:resnet18  likewise
        hf:ORG/NAME           an image classifier of Hugging Face; also hf:FOLDER

    `weights` is a .safetensors or .pth file with a state dict; that of a folder which training
    mymodel.py:build wrote brings what the folder says. `mean` and `std` win over what the source
    says; of `preparation`, every field that is not None does, and `interpolation`
    with `resize` or where it is not the usual "bilinear".

    Guarantee: without `trust_code` no code is executed but that of the Python file that `source`
    names. With it, a .pt2 file is loaded, which can run any code, and so is the Python file that a
    run folder names: pass it for files of people you trust.

    `precision` "auto" is bfloat16 where the device computes in it and the network answers in it,
    else float32; `about` says which. Batch norms are folded into the layers before them where that
    leaves the function as it is, see `fold_known`; `about` says that too, because the module
    that runs is what a certificate speaks of.

    >>> import tempfile
    >>> from deformrs.models import SmallCNN, save_model
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_model(folder, SmallCNN(), Preparation(channels=1))
    >>> load_model(str(folder)).preparation.words
    'grey'
    """
    source = str(source)
    check_precision(precision)
    check_normalisation(mean, std)
    place = usable_device(device)
    if weights is not None:
        weights = Path(weights)
        require_file("the weights file", weights)
    described = preparation is not None and mean is not None
    found = _find(source, weights, place, described, trust_code)
    if found.frozen_graph and precision not in ("auto", "float32"):
        raise InputError(
            "precision",
            repr(precision),
            f"cannot be chosen for {source}, whose computation is fixed",
            "use float32, which runs it as it is",
        )
    spec = found.spec
    if mean is not None:
        spec = dataclasses.replace(spec, mean=mean, std=std)
    if preparation is not None:
        spec = dataclasses.replace(spec, preparation=_merge(spec.preparation, preparation))
    about: Config = {"source": source, **found.about}
    chosen: Precision = "float32"
    if not found.frozen_graph:
        about["state_sha256"] = state_digest(spec.module)
        spec, norms = fold_known(spec)
        about |= {} if norms is None else {"batch_norm": norms}
        chosen = automatic_precision(spec, place) if precision == "auto" else precision
    about |= {
        "mean": None if spec.mean is None else list(spec.mean),
        "std": None if spec.std is None else list(spec.std),
        "precision": chosen,
    }
    module = _module(spec, found, getattr(torch, chosen)).to(place)
    return LoadedModel(module, spec.preparation, spec.class_names, about)


def _module(spec: NetworkSpec, found: ResolvedSource, dtype: torch.dtype) -> Classifier:
    """The module that runs, in evaluation mode and in its precision."""
    classifier = Classifier(spec, dtype).eval().requires_grad_(False)
    if found.frozen_graph:
        # Its state dict, which may hold no weights, then tells one file from another.
        mark = hashlib.sha256(json.dumps(found.about["files"]).encode()).digest()
        classifier.register_buffer("mark", torch.tensor(list(mark), dtype=torch.uint8))
        return classifier
    spec.module.to(dtype)
    if spec.channels_last:
        spec.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def check_source(source: str) -> None:
    """Raise if this is none of the forms of a model; a form that is right may name nothing yet."""
    library, colon, _ = source.partition(":")
    path = Path(source)
    known = (bool(colon) and library in _LIBRARIES) or of_file(source)
    if not known and path.suffix not in _FILES and not (source and path.is_dir()):
        raise _unknown(source)


def _find(
    source: str, weights: Path | None, device: torch.device, described: bool, trust_code: bool
) -> ResolvedSource:
    check_source(source)
    library, colon, name = source.partition(":")
    path = Path(source)
    if colon and library == "timm":
        return load_timm(name, weights)
    if colon and library == "torchvision":
        return load_torchvision(name, weights)
    if of_file(source):
        return load_users(source, weights)
    if weights is not None:
        raise InputError(
            "weights", weights, f"cannot be given for {source}, which has its own", "leave it out"
        )
    if colon and library == "hf":
        return load_hugging_face(name, described)
    if path.suffix == ".onnx":
        return load_onnx(path, device)
    if path.suffix == ".pt2":
        return load_exported(path, device, trust_code)
    return load_saved(path, trust_code)


def _unknown(source: str) -> InputError:
    library, colon, name = source.partition(":")
    path = Path(source)
    near = difflib.get_close_matches(library.lower(), _LIBRARIES, n=1)
    if path.suffix == ".py":
        remedy = f"name the function that builds it, e.g. {source}:build"
    elif path.suffix in _WEIGHTS:
        remedy = "weights need a network: give it as the model and this file as the weights"
    elif colon and near:
        remedy = f"did you mean {near[0]}:{name}?"
    elif "/" in source:
        remedy = f"there is no such file or folder; for Hugging Face write hf:{source}"
    else:
        example = f"timm:{source or 'resnet18'}"
        remedy = f"there is no such file or folder; for a pretrained network write e.g. {example}"
    return InputError("the model", repr(source), f"must be one of {FORMS}", remedy)


def _merge(said: Preparation, given: Preparation) -> Preparation:
    usual = given.resize is None and given.interpolation == Preparation().interpolation
    return Preparation(
        resize=said.resize if given.resize is None else given.resize,
        crop=said.crop if given.crop is None else given.crop,
        interpolation=said.interpolation if usual else given.interpolation,
        channels=said.channels if given.channels is None else given.channels,
    )
