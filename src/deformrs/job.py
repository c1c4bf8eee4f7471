"""A job: a smoothed classifier and its images, loaded and checked together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from PIL import Image
from torch import Tensor, nn

from deformrs.bars import ProgressChoice
from deformrs.chance import AccuracyWatch
from deformrs.config import Config
from deformrs.data import ImageSet, load_data
from deformrs.data.folders import ImageFolder
from deformrs.data.image_set import Subset
from deformrs.data.labels import check_labels
from deformrs.data.preparation import Preparation
from deformrs.dataset import begin, run_method, run_seed, select_indices
from deformrs.deformations import Deformation
from deformrs.engines import Engine
from deformrs.errors import InputError, ModelError
from deformrs.execution import Compiled, chosen_device, scores_of
from deformrs.geometry import Padding, size_of
from deformrs.inputs import Dataset, ImageLike, LabelledImages, as_dataset, as_image, as_pair
from deformrs.models import (
    LoadedModel,
    NetworkSpec,
    PrecisionChoice,
    load_model,
)
from deformrs.noise import NoiseLaw
from deformrs.plan import SamplingPlan
from deformrs.runs import CertifiedRun, StoredRun
from deformrs.runs.files import file_digest
from deformrs.runs.folder import RELATIVE_TO, begun_config, start_of
from deformrs.smoothing import SmoothedClassifier
from deformrs.specs import parse_deformation, parse_noise, python_files
from deformrs.stopping import Stopping


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
    in_pixels = isinstance(noise, str) and "px" in noise
    # On an image of another size these pixels are another law.
    about |= {"noise_in_pixels": str(noise)} if in_pixels else {}
    about |= {
        "model": without_source(model.about),
        "data": without_source(images.about)
        | {"name": images.name, "class_names": list(names) or None},
    }
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


def resumed_execution(out: Path | None) -> tuple[PrecisionChoice, int | None]:
    """Return the precision and the batch size of the run in `out`, if there is one.

    Chosen anew, they could come out differently on another machine.
    """
    config = None if out is None else begun_config(out)
    if config is None:
        return "auto", None
    batch_size = config.get("batch_size")
    return stored_precision(config), batch_size if isinstance(batch_size, int) else None


def stored_precision(config: Config) -> PrecisionChoice:
    """Return the precision that a run was executed in; `auto` is resolved there."""
    model = config.get("model")
    precision = model.get("precision", "auto") if isinstance(model, dict) else "auto"
    return cast("PrecisionChoice", precision)


def plugin_digests(deformation: str) -> Config:
    """Return the digest of each Python file that a deformation names, by file name."""
    return {file.name: file_digest(file) for file in python_files(deformation)}


def without_source(about: Config) -> Config:
    """Return it without the path: a run is bound to what files hold, not to where they lie."""
    return {key: value for key, value in about.items() if key != "source"}


def certify(
    model: str | Path | NetworkSpec | nn.Module | LoadedModel,
    data: str | Path | LabelledImages,
    deformation: Deformation | str,
    noise: NoiseLaw | str,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int | None = None,
    method: str | None = None,
    radii: Sequence[str] | str = (),
    regions: Sequence[str] | str = (),
    skip: int = 1,
    max: int | None = None,
    simultaneous: bool = False,
    out: Path | str | None = None,
    weights: Path | str | None = None,
    class_names: Sequence[str] | None = None,
    padding: Padding = "zeros",
    batch_size: int | None = None,
    device: str = "auto",
    trust_code: bool = False,
    engine: Engine | None = None,
    progress: ProgressChoice = None,
) -> CertifiedRun:
    """Certify a model on labelled images, as `deformrs certify` does, and return the results.

    `model` is what `load_model` takes or returns: "timm:resnet18", "net.py:build", a run folder, a
    module. It is checked to be a fixed function; its output tells the number of classes. `data` is
    what `load_data` or `certify_dataset` takes: "photos/", "digits", a list of pairs, a dataset of
    torch. Files and PIL images are prepared as the model expects; arrays must be so already.
    `deformation` and `noise` are objects, or text such as "rotation" and "uniform:30deg".

    With `radii` ("10deg,30deg") or `regions` ("rotation<=10deg, scale=0.8..1.2"), an image is
    sampled until each of them is decided, at most `n` times. With `simultaneous`, all certificates
    hold together with confidence 1 - alpha. With `out`, results are stored in that folder as they
    are made, and an interrupted run is resumed. Without `trust_code`, no code is executed but that
    of Python files named here. The other arguments are those of `certify_dataset`, `load_model` and
    `SmoothedClassifier`.

    It warns of labels that follow the sorted names of class folders, and of an accuracy without
    noise near that of guessing.

    >>> from deformrs.models import SmallCNN
    >>> run = certify(SmallCNN(width=4), "digits", "rotation", "uniform:30deg", n=100, max=2)
    >>> [result.label for result in run]
    [7, 2]
    """
    folder = None if out is None else Path(out)
    stopping = _stopping(radii, regions)
    method = run_method(folder, method, n)
    plan = SamplingPlan(n, n0, alpha, run_seed(folder, seed), method, stopping)
    precision, stored_size = resumed_execution(folder)
    batch_size = stored_size if batch_size is None else batch_size
    if isinstance(model, LoadedModel):
        _check_loaded(weights, class_names)
        place = next(model.module.parameters(), torch.empty(0)).device
        loaded, device = model, str(place) if device == "auto" else device
    else:
        loaded = load_model(
            model,
            weights=None if weights is None else Path(weights),
            precision=precision,
            device=chosen_device(device),
            trust_code=trust_code,
            class_names=class_names,
        )
    images: LabelledImages
    if isinstance(data, str | Path):
        job = make_job(
            loaded,
            lambda classes: load_data(
                data, loaded.preparation, class_names=loaded.class_names, num_classes=classes
            ),
            deformation,
            noise,
            padding=padding,
            batch_size=batch_size,
            device=device,
            options=_options(model, weights, data, deformation, noise, padding, folder),
        )
        classifier, images, about = job.classifier, job.images, job.about
        if job.images.is_matched_by_order:
            warnings.warn(
                f"labels are {job.images.label_words(most=3)}; compare them with the classes of "
                "the training; a labels.csv or class_names states them",
                stacklevel=2,
            )
    else:
        images = _Prepared(as_dataset(data), loaded)
        image, _ = as_pair("the first image", images[select_indices(len(images))[0]])
        classifier = smooth(
            loaded,
            deformation,
            noise,
            as_image("the first image", image),
            padding=padding,
            batch_size=batch_size,
            device=device,
        )
        about = {"model": without_source(loaded.about)}
    config, results = begin(
        classifier,
        images,
        plan,
        skip=skip,
        max=max,
        simultaneous=simultaneous,
        out=folder,
        about=about,
        same_size=isinstance(noise, str) and "px" in noise,
        engine=engine,
        progress=progress,
    )
    watch = AccuracyWatch(
        len(select_indices(len(images), skip, max)),
        cast("int", config["num_classes"]),
        lambda below: _LIKELY_CAUSES,
        lambda text: warnings.warn(text, stacklevel=4),
    )
    certified = []
    for result in results:
        certified.append(result)
        watch.add(result)
    return (
        CertifiedRun(config, certified) if folder is None else StoredRun(folder, config, certified)
    )


_LIKELY_CAUSES = (
    "labels in another order than in its training: compare them; class_names states the model's",
    "missing normalisation: load_model(NetworkSpec(network, mean=..., std=...))",
    "random weights: load a state dict into it, or give weights",
    "images unlike those of its training, in their classes, size or colours",
)


def _stopping(radii: Sequence[str] | str, regions: Sequence[str] | str) -> Stopping | None:
    if isinstance(radii, str):
        radii = [text.strip() for text in radii.split(",")]
    regions = [regions] if isinstance(regions, str) else regions
    if radii or regions:
        return Stopping(radii, regions)  # type: ignore[arg-type]  # it makes them tuples
    return None


def _check_loaded(weights: object, class_names: object) -> None:
    for name, value in (("weights", weights), ("class_names", class_names)):
        if value is not None:
            raise InputError(
                name, value, "cannot be given for a loaded model", f"load_model(..., {name}=...)"
            )


def _options(
    model: object,
    weights: Path | str | None,
    data: Path | str,
    deformation: object,
    noise: object,
    padding: str,
    out: Path | None,
) -> Config | None:
    """Return how the job was requested, as far as it is text, for the verbs that read a run.

    None without a run folder.
    """
    if out is None:
        return None
    texts = {"model": model, "weights": weights, "deformation": deformation, "noise": noise}
    return {
        **{name: str(text) for name, text in texts.items() if isinstance(text, str | Path)},
        "data": str(data),
        "split": "test",
        "data_root": None,
        "padding": padding,
        RELATIVE_TO: start_of(out),
    }


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A dataset whose PIL images are prepared as a model expects; the others must be so already."""

    dataset: Dataset
    model: LoadedModel

    def __post_init__(self) -> None:
        own, names = getattr(self.dataset, "class_names", None), self.model.class_names
        if isinstance(self.dataset, ImageSet) and names and own and names != own:
            raise InputError(
                "the classes of the data",
                f"{', '.join(own[:3])}, ...",
                f"must be the model's: {', '.join(names[:3])}, ...",
                "load_data(..., class_names=model.class_names), or give the path of the data",
            )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[ImageLike, object]:
        name = self.source(index) or f"image {index}"
        image, label = as_pair(name, self.dataset[index])
        if isinstance(image, Image.Image):
            return self.model.preparation.prepare(image), label
        tensor = as_image(name, image)
        _check_prepared(name, tensor, self.model.preparation)
        return tensor, label

    @property
    def labels(self) -> object:
        return getattr(self.dataset, "labels", getattr(self.dataset, "targets", None))

    def source(self, index: int) -> str:
        source = getattr(self.dataset, "source", None)
        return str(source(index)) if callable(source) else ""


def _check_prepared(name: str, image: Tensor, preparation: Preparation) -> None:
    """Raise if an image cannot be what this preparation returns."""
    size = size_of(image)
    expected = preparation.crop or preparation.resize
    fits = min(size) == expected if isinstance(expected, int) else expected in (None, size)
    if not fits or preparation.channels not in (None, len(image)):
        raise InputError(
            name,
            f"of {len(image)} channel(s) and {size[0]} x {size[1]} px",
            f"must be prepared as the model expects ({preparation.words})",
            "give PIL images, which are, or load_data(path, model.preparation)",
        )
