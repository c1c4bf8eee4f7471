"""From options as people type them to a smoothed classifier and its pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deformrs.config import Config, ConfigValue
from deformrs.data import PictureSet
from deformrs.engines.identity import network_identity
from deformrs.errors import InputError
from deformrs.geometry import size_of
from deformrs.models import LoadedModel, check_fixed
from deformrs.runs import read_config
from deformrs.smoothing import SmoothedClassifier, scores_of
from deformrs.specs import parse_deformation, parse_noise
from deformrs.tasks.options import (
    DataOptions,
    DownloadReport,
    ModelOptions,
    SmoothingOptions,
    chosen_device,
    plain_options,
)
from deformrs.units import Size


@dataclass(frozen=True)
class Job:
    """What there is to certify."""

    classifier: SmoothedClassifier
    pictures: PictureSet
    size: Size
    """Of the first picture: pixels in options are counted on it."""
    noise_in_pixels: bool
    about: Config
    """What reproduces the job, beside what the engine writes down of itself."""


def prepare(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None = None,
    report: DownloadReport | None = None,
) -> Job:
    """Load the network and the pictures, and see that they fit.

    `out` is the run folder, if there is one: an automatic batch size stays what it was there.
    """
    loaded = model.load()
    some = data.load(loaded.preparation, None, loaded.class_names, report)
    image = torch.from_numpy(some[0][0])
    classifier = smooth(loaded, model, smoothing, image, _batch_size_there(out))
    pictures = data.load(loaded.preparation, classifier.num_classes, loaded.class_names)
    names = loaded.class_names or pictures.class_names or ()
    about: Config = {
        "command": "certify",
        "options": plain_options(model) | plain_options(data) | plain_options(smoothing),
        "model": _without_source(loaded.about),
        "data": _without_source(pictures.about)
        | {"name": pictures.name, "class_names": list(names) or None},
    }
    return Job(classifier, pictures, size_of(image), "px" in smoothing.noise, about)


def smooth(
    loaded: LoadedModel,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    image: Tensor,
    batch_size: int | None = None,
) -> SmoothedClassifier:
    """The smoothed classifier, tried on one picture. `batch_size` stands for an automatic one."""
    device = chosen_device(model.device)
    batch = torch.stack([image, image.flip(-1), 0.5 * image, 1 - image]).to(device)
    with torch.inference_mode():
        num_classes = scores_of(loaded.module, batch[:1]).shape[1]
        check_fixed(loaded.module, batch)
    deformation = parse_deformation(smoothing.deformation)
    noise = parse_noise(smoothing.noise, deformation.space(size_of(image)))
    size = model.batch_size or batch_size or automatic_batch_size(loaded, image, device)
    return SmoothedClassifier(
        loaded.module,
        deformation,
        noise,
        num_classes,
        padding=smoothing.padding,
        batch_size=size,
        device=device,
    )


def automatic_batch_size(loaded: LoadedModel, image: Tensor, device: torch.device) -> int:
    """A power of two that keeps the device busy and, on a GPU, is seen to fit its memory."""
    numbers, least, most = (2**27, 32, 4096) if device.type == "cuda" else (2**23, 32, 256)
    fitting = numbers // image.numel()
    size = min(most, max(least, 1 << max(0, fitting.bit_length() - 1)))
    if device.type != "cuda":
        return size
    while True:
        try:
            with torch.inference_mode():
                # Beside the network's own, warped copies and their field take memory.
                pictures = image.to(device).expand(size, *image.shape).clone()
                loaded.module(pictures + pictures)
            return size
        except torch.OutOfMemoryError:
            if size <= 1:
                raise
            size //= 2


def check_same_model(config: Config, loaded: LoadedModel) -> None:
    """Raise if the network is no longer the one that a run was made with."""
    there = config.get("model")
    here = network_identity(loaded.module)
    if not isinstance(there, dict) or any(there.get(key) != here[key] for key in here):
        raise InputError(
            "the model of the run",
            "not the one found there now",
            "must have the weights that were certified",
            "restore them, or certify again",
        )


def _without_source(about: Config) -> Config:
    """What binds a run is what was in the files, not where they lie: that is in its options."""
    return {key: value for key, value in about.items() if key != "source"}


def _batch_size_there(out: Path | None) -> int | None:
    if out is None or not (out / "config.json").exists():
        return None
    found: ConfigValue = read_config(out).get("batch_size")
    return found if isinstance(found, int) else None
