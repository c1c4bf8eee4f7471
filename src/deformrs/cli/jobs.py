"""Load what is certified: a smoothed classifier and its images."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deformrs.cli.defaults import stored_precision
from deformrs.cli.options import (
    DataOptions,
    ModelOptions,
    SmoothingOptions,
    chosen_device,
    plain_options,
)
from deformrs.config import Config
from deformrs.data import ImageSet
from deformrs.data.download import DownloadProgress
from deformrs.data.labels import check_labels
from deformrs.dataset import device_name, network_config
from deformrs.errors import InputError, ModelError
from deformrs.execution import scores_of
from deformrs.geometry import size_of
from deformrs.models import LoadedModel, check_fixed
from deformrs.runs import CONFIG, read_config
from deformrs.runs.files import file_digest
from deformrs.runs.folder import RELATIVE_TO, difference, start_of
from deformrs.smoothing import SmoothedClassifier
from deformrs.specs import parse_deformation, parse_noise, python_files


@dataclass(frozen=True)
class Job:
    """A smoothed classifier and the images to certify."""

    classifier: SmoothedClassifier
    images: ImageSet
    noise_in_pixels: bool
    """Whether the noise was given in pixels, which are counted on the first image."""
    about: Config
    """What reproduces the job, besides what `certify_dataset` stores itself."""

    @property
    def first_image(self) -> Tensor:
        return torch.from_numpy(self.images[0][0])

    @property
    def execution(self) -> str:
        """Return the precision, the device and the batch size in words."""
        model = self.about["model"]
        precision = model.get("precision") if isinstance(model, dict) else None
        device = device_name(self.classifier.device_for(self.first_image))
        return f"{precision} on {device}, batches of {self.classifier.batch_size}"


def prepare(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None = None,
    report: DownloadProgress | None = None,
) -> Job:
    """Load the model and the images, and check that they fit.

    What the options leave open stays as it is in `out`, if that is a run folder already.
    """
    resumed = resume(model, out)
    loaded = resumed.load()
    images = data.load(loaded.preparation, class_names=loaded.class_names, report=report)
    first = torch.from_numpy(images[0][0])
    classifier = smooth(loaded, resumed, smoothing, first)
    images = _labelled(images, data, loaded, classifier.num_classes)
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
    return Job(classifier, images, "px" in smoothing.noise, about)


def resume(model: ModelOptions, out: Path | None) -> ModelOptions:
    """Return the options with automatic precision and batch size as the run in `out` has them.

    On another machine they could come out differently.
    """
    if out is None or not (out / CONFIG).exists():
        return model
    config = read_config(out)
    batch_size = config.get("batch_size")
    if model.precision == "auto":
        model = dataclasses.replace(model, precision=stored_precision(config))
    if model.batch_size is None and isinstance(batch_size, int):
        model = dataclasses.replace(model, batch_size=batch_size)
    return model


def _labelled(
    images: ImageSet, data: DataOptions, loaded: LoadedModel, num_classes: int
) -> ImageSet:
    """Return the images with labels for that many classes."""
    if loaded.class_names is None and Path(data.data).expanduser().is_dir():
        # What the names of class folders mean depends on it. No image file is read for that.
        return data.load(loaded.preparation, num_classes)
    check_labels(images.labels, num_classes, images.source)
    return images


def smooth(
    loaded: LoadedModel, model: ModelOptions, smoothing: SmoothingOptions, image: Tensor
) -> SmoothedClassifier:
    """Return the smoothed classifier, after a trial on one image."""
    deformation = parse_deformation(smoothing.deformation)
    noise = parse_noise(smoothing.noise, deformation.space(size_of(image)))
    device = chosen_device(model.device)
    with torch.inference_mode():
        num_classes = scores_of(loaded.module, image[None].to(device)).shape[1]
    names = loaded.class_names
    if names is not None and len(names) != num_classes:
        raise ModelError(
            "the number of the model's class names",
            len(names),
            f"must be that of its scores, {num_classes}",
            "correct the names, or give none",
        )
    batch_size = model.batch_size or automatic_batch_size(loaded, image, device)
    check_fixed(loaded.module, torch.stack([image, image.flip(-1)]).to(device), batch_size)
    return SmoothedClassifier(
        loaded.module,
        deformation,
        noise,
        num_classes,
        padding=smoothing.padding,
        batch_size=batch_size,
        compiled=model.compile,
        device=device,
    )


def automatic_batch_size(loaded: LoadedModel, image: Tensor, device: torch.device) -> int:
    """Return a power of two that keeps the device busy and fits the memory of a GPU."""
    numbers, most = (2**27, 8192) if device.type == "cuda" else (2**23, 256)
    size = min(most, 1 << max(0, (numbers // image.numel()).bit_length() - 1))
    while device.type == "cuda":
        try:
            with torch.inference_mode():
                # Warped copies and their field take memory besides the network's own.
                images = image.to(device).expand(size, *image.shape).clone()
                loaded.module(images + images)
            break
        except torch.OutOfMemoryError:
            if size <= 1:
                raise
            size //= 2
    return size


def load_model_of_run(run: Path, model: ModelOptions, smoothing: SmoothingOptions) -> LoadedModel:
    """Load the model of a run; without class names of its own it gets those of the images.

    Raise if model, preparation or plug-in differ from those that were certified.
    """
    loaded, config = model.load(), read_config(run)
    data = config.get("data")
    theirs: Config = {
        "model": config.get("model"),
        "data": {"preparation": data.get("preparation") if isinstance(data, dict) else None},
        "plugins": config.get("plugins"),
    }
    ours: Config = {
        "model": _without_source(loaded.about) | network_config(loaded.module),
        "data": {"preparation": loaded.preparation.to_config()},
        "plugins": plugin_digests(smoothing) or None,
    }
    ours = json.loads(json.dumps(ours))  # tuples become lists, as in the file
    if ours != theirs:
        raise InputError(
            "the model of the run",
            f"not the one found now ({difference(theirs, ours)})",
            "must be what was certified",
            "restore it, or certify again",
        )
    names = data.get("class_names") if isinstance(data, dict) else None
    own = loaded.class_names is not None
    if not own and isinstance(names, list) and len(names) == config.get("num_classes"):
        loaded = dataclasses.replace(loaded, class_names=tuple(map(str, names)))
    return loaded


def plugin_digests(smoothing: SmoothingOptions) -> Config:
    """Return the digest of each Python file that the deformation names, by file name."""
    return {file.name: file_digest(file) for file in python_files(smoothing.deformation)}


def _without_source(about: Config) -> Config:
    """Return it without the path: a run is bound to what files hold, not to where they lie."""
    return {key: value for key, value in about.items() if key != "source"}
