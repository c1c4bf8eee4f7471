"""A job from the options of a verb, and the model of a stored run."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from deformrs.cli.options import DataOptions, ModelOptions, SmoothingOptions, plain_options
from deformrs.config import Config
from deformrs.data.download import DownloadProgress
from deformrs.errors import InputError
from deformrs.fingerprints import network_config
from deformrs.job import (
    Job,
    make_job,
    plugin_digests,
    resumed_execution,
    smooth,
    without_source,
)
from deformrs.models import LoadedModel, PrecisionChoice
from deformrs.runs import read_config
from deformrs.runs.folder import RELATIVE_TO, difference, start_of
from deformrs.smoothing import SmoothedClassifier


def prepare(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None = None,
    report: DownloadProgress | None = None,
    *,
    elsewhere: bool = False,
) -> Job:
    """Load the model and the images, and check that they fit.

    What the options leave open stays as it is in `out`, if that is a run folder already. A model
    that is sampled `elsewhere`, by workers, is loaded here to know what it expects.
    """
    resumed = resume(model, out)
    if elsewhere:
        resumed = _local(resumed)
    loaded = resumed.load()
    options = plain_options(model) | plain_options(data) | plain_options(smoothing)
    return make_job(
        loaded,
        lambda classes: data.load(loaded.preparation, classes, loaded.class_names, report),
        smoothing.deformation,
        smoothing.noise,
        padding=smoothing.padding,
        batch_size=resumed.batch_size,
        compiled=resumed.compile,
        device=resumed.device,
        options=options | ({} if out is None else {RELATIVE_TO: start_of(out)}),
    )


@dataclass(frozen=True)
class JobLoader:
    """Loads the model of a job and smooths it, on a worker that has its own device."""

    model: ModelOptions
    smoothing: SmoothingOptions

    def __call__(self, image: Tensor) -> tuple[SmoothedClassifier, Config]:
        loaded = self.model.load()
        classifier = smooth_as(loaded, self.model, self.smoothing, image)
        plugins = plugin_digests(self.smoothing.deformation)
        about: Config = {"model": without_source(loaded.about)}
        return classifier, about | ({"plugins": plugins} if plugins else {})


def _local(model: ModelOptions) -> ModelOptions:
    """Return the options by which a model is loaded where no GPU may be, and quickly."""
    precision: PrecisionChoice = "float32" if model.precision == "auto" else model.precision
    return dataclasses.replace(model, device="cpu", compile="no", precision=precision)


def resume(model: ModelOptions, out: Path | None) -> ModelOptions:
    """Return the options with automatic precision and batch size as the run in `out` has them.

    On another machine they could come out differently.
    """
    precision, batch_size = resumed_execution(out)
    return dataclasses.replace(
        model,
        precision=precision if model.precision == "auto" else model.precision,
        batch_size=batch_size if model.batch_size is None else model.batch_size,
    )


def smooth_as(
    loaded: LoadedModel, model: ModelOptions, smoothing: SmoothingOptions, image: Tensor
) -> SmoothedClassifier:
    """Return the smoothed classifier that the options describe, after a trial on one image."""
    return smooth(
        loaded,
        smoothing.deformation,
        smoothing.noise,
        image,
        padding=smoothing.padding,
        batch_size=model.batch_size,
        compiled=model.compile,
        device=model.device,
    )


def load_model_of_run(run: Path, model: ModelOptions) -> LoadedModel:
    """Load the model of a run; unless the options name its classes, the run does.

    Raise if model or preparation differ from those that were certified.
    """
    loaded, config = model.load(), read_config(run)
    stored, data = config.get("model"), config.get("data")
    theirs: Config = {
        "model": stored,
        "data": {"preparation": data.get("preparation") if isinstance(data, dict) else None},
    }
    about = without_source(loaded.about) | network_config(loaded.module)
    if not isinstance(stored, dict) or "name" not in stored:
        about.pop("name", None)  # runs of earlier versions lack it
    ours: Config = {"model": about, "data": {"preparation": loaded.preparation.to_config()}}
    ours = json.loads(json.dumps(ours))  # tuples become lists, as in the file
    if ours != theirs:
        raise InputError(
            "the model of the run",
            f"not the one found now ({difference(theirs, ours)})",
            "must be what was certified",
            "restore it, or certify again",
        )
    names = data.get("class_names") if isinstance(data, dict) else None
    if not isinstance(names, list) or len(names) != config.get("num_classes") or model.class_names:
        return loaded
    return dataclasses.replace(loaded, class_names=tuple(map(str, names)))
