"""From options as people type them to a smoothed classifier and its images."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deformrs.cli.arguments import (
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    chosen_device,
    plain_options,
)
from deformrs.config import Config, ConfigValue
from deformrs.data import ImageSet
from deformrs.data.download import DownloadProgress
from deformrs.dataset import device_name, network_config
from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.geometry import size_of
from deformrs.models import LoadedModel, check_fixed
from deformrs.runs import read_config
from deformrs.runs.folder import RELATIVE_TO, difference, start_of
from deformrs.smoothing import SmoothedClassifier
from deformrs.specs import parse_deformation, parse_noise, python_files
from deformrs.units import Size


@dataclass(frozen=True)
class Job:
    """What there is to certify."""

    classifier: SmoothedClassifier
    images: ImageSet
    size: Size
    """Of the first image: pixels in options are counted on it."""
    noise_in_pixels: bool
    about: Config
    """What reproduces the job, beside what the engine writes down of itself."""

    @property
    def execution(self) -> str:
        """How the network runs: in which precision, where, how many images at once."""
        model = self.about["model"]
        precision = model.get("precision") if isinstance(model, dict) else None
        image = torch.from_numpy(self.images[0][0])
        device = device_name(self.classifier.device_for(image))
        return f"{precision} on {device}, batches of {self.classifier.batch_size}"


def prepare(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None = None,
    report: DownloadProgress | None = None,
) -> Job:
    """Load the network and the images, and see that they fit.

    `out` is the run folder, if there is one: what is chosen automatically stays as it was there.
    """
    loaded = model.as_in(out).load()
    some = data.load(loaded.preparation, None, loaded.class_names, report)
    image = torch.from_numpy(some[0][0])
    classifier = smooth(loaded, model, smoothing, image, _batch_size_there(out))
    images = data.load(loaded.preparation, classifier.num_classes, loaded.class_names)
    names = loaded.class_names or images.class_names or ()
    plugins = plugin_digests(smoothing)
    about: Config = {"plugins": plugins} if plugins else {}
    about |= {
        "command": "certify",
        "options": plain_options(model)
        | plain_options(data)
        | plain_options(smoothing)
        | ({} if out is None else {RELATIVE_TO: start_of(out)}),
        "model": _without_source(loaded.about),
        "data": _without_source(images.about)
        | {"name": images.name, "class_names": list(names) or None},
    }
    return Job(classifier, images, size_of(image), "px" in smoothing.noise, about)


def smooth(
    loaded: LoadedModel,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    image: Tensor,
    batch_size: int | None = None,
) -> SmoothedClassifier:
    """The smoothed classifier, tried on one image. `batch_size` stands for an automatic one."""
    deformation = parse_deformation(smoothing.deformation)
    noise = parse_noise(smoothing.noise, deformation.space(size_of(image)))
    device = chosen_device(model.device)
    with torch.inference_mode():
        num_classes = scores_of(loaded.module, image[None].to(device)).shape[1]
    _check_names(loaded, num_classes)
    size = model.batch_size or batch_size or automatic_batch_size(loaded, image, device)
    check_fixed(loaded.module, torch.stack([image, image.flip(-1)]).to(device), size)
    return SmoothedClassifier(
        loaded.module,
        deformation,
        noise,
        num_classes,
        padding=smoothing.padding,
        batch_size=size,
        compiled=model.compile,
        device=device,
    )


def automatic_batch_size(loaded: LoadedModel, image: Tensor, device: torch.device) -> int:
    """A power of two that keeps the device busy and, on a GPU, is seen to fit its memory."""
    numbers, most = (2**27, 8192) if device.type == "cuda" else (2**23, 256)
    fitting = numbers // image.numel()
    size = min(most, 1 << max(0, fitting.bit_length() - 1))
    if device.type != "cuda":
        return size
    while True:
        try:
            with torch.inference_mode():
                # Beside the network's own, warped copies and their field take memory.
                images = image.to(device).expand(size, *image.shape).clone()
                loaded.module(images + images)
            return size
        except torch.OutOfMemoryError:
            if size <= 1:
                raise
            size //= 2


def check_same_model(config: Config, loaded: LoadedModel, smoothing: SmoothingOptions) -> None:
    """Raise if model, preparation or plug-in are no longer those that a run was made with."""
    here: Config = {
        "model": _without_source(loaded.about) | network_config(loaded.module),
        "data": {"preparation": loaded.preparation.to_config()},
        "plugins": plugin_digests(smoothing) or None,
    }
    data = config.get("data")
    there: Config = {
        "model": config.get("model"),
        "data": {"preparation": data.get("preparation") if isinstance(data, dict) else None},
        "plugins": config.get("plugins"),
    }
    if json.loads(json.dumps(here)) != there:
        raise InputError(
            "the model of the run",
            f"not the one found now ({difference(there, json.loads(json.dumps(here)))})",
            "must be what was certified",
            "restore it, or certify again",
        )


def plugin_digests(smoothing: SmoothingOptions) -> Config:
    """What the files of one's own families hold, by name."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in python_files(smoothing.deformation)
    }


def _check_names(loaded: LoadedModel, num_classes: int) -> None:
    names = loaded.class_names
    if names is not None and len(names) != num_classes:
        raise ModelError(
            "the number of the model's class names",
            len(names),
            f"must be that of its scores, {num_classes}",
            "correct the names, or give none",
        )


def _without_source(about: Config) -> Config:
    """What binds a run is what was in the files, not where they lie: that is in its options."""
    return {key: value for key, value in about.items() if key != "source"}


def _batch_size_there(out: Path | None) -> int | None:
    if out is None or not (out / "config.json").exists():
        return None
    found: ConfigValue = read_config(out).get("batch_size")
    return found if isinstance(found, int) else None
