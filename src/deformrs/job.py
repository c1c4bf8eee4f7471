"""A job: a smoothed classifier and its images, loaded and checked together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from deformrs.config import Config
from deformrs.data import ImageSet
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import Subset
from deformrs.data.labels import check_labels
from deformrs.dataset import device_name
from deformrs.deformations import Deformation
from deformrs.errors import ModelError
from deformrs.execution import Compiled, chosen_device, scores_of
from deformrs.geometry import Padding, size_of
from deformrs.models import LoadedModel, check_fixed
from deformrs.noise import NoiseLaw
from deformrs.runs.files import file_digest
from deformrs.smoothing import SmoothedClassifier
from deformrs.specs import parse_deformation, parse_noise, python_files


@dataclass(frozen=True)
class Job:
    """A smoothed classifier and the images to certify. Made by `make_job`."""

    model: LoadedModel
    images: ImageSet
    classifier: SmoothedClassifier
    num_classes: int
    noise_in_pixels: bool
    """Whether the noise was given in pixels, which are counted on the first image."""
    about: Config
    """What reproduces the job, besides what `certify_dataset` stores itself."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes: those of the model, else those of the images."""
        return self.model.class_names or self.images.class_names

    @property
    def first_image(self) -> Tensor:
        return torch.from_numpy(self.images[0][0])

    @property
    def execution(self) -> str:
        """Return the precision, the device and the batch size in words."""
        device = device_name(self.classifier.device_for(self.first_image))
        precision = self.model.about.get("precision")
        return f"{precision} on {device}, batches of {self.classifier.batch_size}"


def make_job(
    model: LoadedModel,
    load: Callable[[int | None], ImageSet],
    deformation: Deformation | str,
    noise: NoiseLaw | str,
    *,
    padding: Padding = "zeros",
    batch_size: int | None = None,
    compiled: Compiled = "no",
    device: str = "auto",
    options: Config | None = None,
) -> Job:
    """Load the images and smooth the model, checking that all of it fits.

    `load` returns the images with labels for that many classes, None where it is not known yet.
    `options` records how the job was requested.
    """
    images = load(None)
    first = torch.from_numpy(images[0][0])
    classifier = smooth(
        model,
        deformation,
        noise,
        first,
        padding=padding,
        batch_size=batch_size,
        compiled=compiled,
        device=device,
    )
    num_classes = classifier.classes_for(first)
    stored = images.dataset if isinstance(images, Subset) else images
    if model.class_names is None and isinstance(stored, ImageFolder):
        # What the names of class folders mean depends on it. No image file is read for that.
        images = load(num_classes)
    else:
        check_labels(images.labels, num_classes, images.source)
    names = model.class_names or images.class_names or ()
    plugins = plugin_digests(deformation) if isinstance(deformation, str) else {}
    about: Config = {"plugins": plugins} if plugins else {}
    about |= {} if options is None else {"command": "certify", "options": options}
    about |= {
        "model": without_source(model.about),
        "data": without_source(images.about)
        | {"name": images.name, "class_names": list(names) or None},
    }
    in_pixels = isinstance(noise, str) and "px" in noise
    return Job(model, images, classifier, num_classes, in_pixels, about)


def smooth(
    model: LoadedModel,
    deformation: Deformation | str,
    noise: NoiseLaw | str,
    image: Tensor,
    *,
    padding: Padding = "zeros",
    batch_size: int | None = None,
    compiled: Compiled = "no",
    device: str = "auto",
) -> SmoothedClassifier:
    """Return the smoothed classifier, after a trial on one image.

    Pixels in the text of `noise` are those of that image.
    """
    if isinstance(deformation, str):
        deformation = parse_deformation(deformation)
    if isinstance(noise, str):
        noise = parse_noise(noise, deformation.space(size_of(image)))
    place = chosen_device(device)
    with torch.inference_mode():
        num_classes = scores_of(model.module, image[None].to(place)).shape[1]
    names = model.class_names
    if names is not None and len(names) != num_classes:
        raise ModelError(
            "the number of the model's class names",
            len(names),
            f"must be that of its scores, {num_classes}",
            "correct the names, or give none",
        )
    batch_size = batch_size or automatic_batch_size(model, image, place)
    check_fixed(model.module, torch.stack([image, image.flip(-1)]).to(place), batch_size)
    return SmoothedClassifier(
        model.module,
        deformation,
        noise,
        num_classes,
        padding=padding,
        batch_size=batch_size,
        compiled=compiled,
        device=place,
    )


def automatic_batch_size(model: LoadedModel, image: Tensor, device: torch.device) -> int:
    """Return a power of two that keeps the device busy and fits the memory of a GPU."""
    numbers, most = (2**27, 8192) if device.type == "cuda" else (2**23, 256)
    size = min(most, 1 << max(0, (numbers // image.numel()).bit_length() - 1))
    while device.type == "cuda":
        try:
            with torch.inference_mode():
                # Warped copies and their field take memory besides the network's own.
                images = image.to(device).expand(size, *image.shape).clone()
                model.module(images + images)
            break
        except torch.OutOfMemoryError:
            if size <= 1:
                raise
            size //= 2
    return size


def plugin_digests(deformation: str) -> Config:
    """Return the digest of each Python file that a deformation names, by file name."""
    return {file.name: file_digest(file) for file in python_files(deformation)}


def without_source(about: Config) -> Config:
    """Return it without the path: a run is bound to what files hold, not to where they lie."""
    return {key: value for key, value in about.items() if key != "source"}
