"""`deformrs predict`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import torch

from deformrs.certificate import Certificate
from deformrs.cli.defaults import find_trained, options_of
from deformrs.cli.jobs import load_model_of_run, smooth_as
from deformrs.cli.options import (
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    model_options,
    run_option,
    sampling_options,
    smoothing_options,
)
from deformrs.cli.parameters import is_typed
from deformrs.cli.terminal import echo
from deformrs.data import load_image
from deformrs.data.folders import SUFFIXES, is_image_file, stored_size
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, LogitError, ModelError, printable
from deformrs.fingerprints import tensor_digest
from deformrs.geometry import size_of
from deformrs.plan import seed_or_fresh
from deformrs.rounding import format_down
from deformrs.runs import Result, read_run
from deformrs.smoothing import SmoothedClassifier
from deformrs.stopping import Query, parse_queries
from deformrs.units import Size


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@run_option
@model_options(required=False)
@smoothing_options(required=False)
@sampling_options(n=10_000)
@click.option(
    "--region", "regions", multiple=True, help="Also say whether this region is certified."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def predict(
    files: tuple[Path, ...],
    run: Path | None,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    sampling: SamplingOptions,
    regions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict the class of images, with the certified radius of each.

    A model folder that deformrs train wrote brings its deformation and noise. Among several files,
    as from photos/*, those that are not images are skipped with a note: folders, and files with
    neither the suffix nor the content of an image. A note says how images of another size were
    prepared.

    \b
    Examples:
      deformrs predict digit.png --run runs/quickstart
      deformrs predict digit.png --model runs/quickstart --deformation translation \\
          --noise gaussian:2px --n 2000
    """
    queries = parse_queries((), regions)
    files = image_files(files)
    if run is not None:
        model, smoothing = options_of(run, model, smoothing)
    else:
        trained = find_trained(model.model, model.weights)
        if trained is not None:
            smoothing = trained.smoothing_for(
                smoothing, padding_given=is_typed("padding"), trust_code=model.trust_code
            )
        _check_given(model, smoothing)
    given, sampling = sampling.seed, replace(sampling, seed=seed_or_fresh(sampling.seed))
    failed = done = False
    notes: Counter[str] = Counter()
    for prediction in predictions(files, model, smoothing, sampling, queries, run):
        if isinstance(prediction, Failure):
            failed = True
            echo(f"error: {prediction.words}", err=True)
        else:
            done = True
            echo(prediction.json if as_json else prediction.words)
            for kind, note in prediction.notes.items():
                if kind not in notes:
                    echo(f"note: {prediction.file}: {note}", err=True)
                notes[kind] += 1
    for kind, count in notes.items():
        if count > 1:
            echo(f"note: {kind}: {count - 1} more of these images", err=True)
    if done and given is None and not as_json:  # where every line has it
        echo(f"note: the noise is random; --seed {sampling.seed} repeats it", err=True)
    if failed:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class Prediction:
    """The certified prediction for one image file."""

    file: Path
    certificate: Certificate
    class_name: str | None
    regions: dict[str, bool]
    """Whether each requested region is certified."""
    notes: dict[str, str]
    """What may surprise, by what can be said of several images."""
    prepared: str | None
    """How the size was changed for the model."""

    @property
    def words(self) -> str:
        """Return a line such as `photo.jpg: tabby, holds for any rotation up to 27.31°`."""
        certificate = self.certificate
        odds = f"(n = {certificate.counts.n:,}, alpha = {certificate.alpha})"
        if certificate.prediction is None:
            return f"{self.file}: abstains, no class is certain enough {odds}"
        name = self.class_name or f"class {certificate.prediction}"
        regions = "".join(
            f"; {text}: {'certified' if certified else 'not certified'}"
            for text, certified in self.regions.items()
        )
        return f"{self.file}: {name}, holds for {certificate.reach}{regions} {odds}"

    @property
    def json(self) -> str:
        """Return a JSON object. Radii are in the package's own units."""
        c = self.certificate
        text = json.dumps(
            {
                "file": str(self.file),
                "prediction": c.prediction,
                "class_name": self.class_name,
                "radii": {
                    block.family: radius
                    for block, radius in zip(c.space.blocks, c.radii, strict=True)
                },
                "holds_for": None if c.prediction is None else c.reach,
                "regions": self.regions,
                "p_lower": float(format_down(c.p_lower, 12)),
                "n": c.counts.n,
                "alpha": c.alpha,
                "seed": c.seed,
                "size": c.space.size,
                "prepared": self.prepared,
            },
            ensure_ascii=False,
        )
        # What a terminal would act upon is written as JSON escapes it.
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


@dataclass(frozen=True)
class Failure:
    """Why there is no prediction for an image file."""

    file: Path
    error: InputError | ModelError

    @property
    def words(self) -> str:
        """Return the error as a line that names the file."""
        text = str(self.error)
        return text if printable(str(self.file)) in text else f"{self.file}: {text}"


def predictions(
    files: Sequence[Path],
    model: ModelOptions,
    smoothing: SmoothingOptions,
    sampling: SamplingOptions,
    queries: Sequence[Query] = (),
    run: Path | None = None,
) -> Iterator[Prediction | Failure]:
    """Yield the prediction for each file; it depends on the image and the seed, not on the others.

    Images with other pixels get other noise. With `run`, raise unless the model is still the one
    that was certified there.
    """
    loaded = model.load() if run is None else load_model_of_run(run, model)
    names = loaded.class_names
    classifier: SmoothedClassifier | None = None
    certified_size = _certified_size(run, loaded.preparation)
    for file in files:
        try:
            image = torch.from_numpy(load_image(file, loaded.preparation))
            size, stored = size_of(image), stored_size(file)
            if classifier is None or "px" in smoothing.noise:  # pixels are counted on each image
                classifier = smooth_as(loaded, model, smoothing, image)
                for query in queries:
                    query.check(classifier.deformation.space(size))
            certificate = classifier.certify(
                image,
                sampling.n,
                sampling.n0,
                sampling.alpha,
                sampling.seed,
                index=int(tensor_digest(image), 16),
            )
        except LogitError as error:
            named = LogitError.of(error.index, deformed=error.deformed, name=str(file))
            yield Failure(file, named)
            continue
        except (InputError, ModelError) as error:
            yield Failure(file, error)
            continue
        # The label is unknown: the result takes the prediction for it, and covers what it covers.
        label = -1 if certificate.prediction is None else certificate.prediction
        result = Result(0, label, certificate)
        name = names[label] if names is not None and label >= 0 else None
        covered = {query.text: query.holds(result) for query in queries}
        notes, prepared = {}, None
        if size != stored:
            prepared = f"{_px(stored)}, prepared as the model expects: {loaded.preparation.words}"
            notes["resized or cropped"] = prepared
        if certified_size not in (None, size):
            notes["of another size than the run's images"] = (
                f"{_px(size)}, unlike the run's images, {_px(certified_size)}: noise in px or half "
                "sides is another share of it, and the run's accuracy need not carry over"
            )
        yield Prediction(file, certificate, name, covered, notes, prepared)


def image_files(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the files without those that are not images, which a note names.

    A file that is given alone, or that does not exist, is kept: it is an error to be named.
    """
    others = [file for file in files if file.exists() and not is_image_file(file)]
    if not others or len(files) == 1:
        return files
    names = ", ".join(map(str, others[:5])) + (f" and {len(others) - 5} more" * (len(others) > 5))
    if len(others) == len(files):
        raise InputError(
            "the list of files",
            f"without an image ({names})",
            "must hold at least one",
            "images end in " + ", ".join(SUFFIXES),
        )
    echo(f"note: skipped, not images: {names}", err=True)
    return tuple(file for file in files if file not in others)


def _certified_size(run: Path | None, preparation: Preparation) -> Size | None:
    """Return the size of a run's images; None if it need not be that of other images."""
    if run is None or preparation.crop is not None or isinstance(preparation.resize, tuple):
        return None
    sizes = {result.certificate.space.size for result in read_run(run).results}
    return sizes.pop() if len(sizes) == 1 else None


def _px(size: Size) -> str:
    height, width = size
    return f"{width} px wide and {height} high"


def _check_given(model: ModelOptions, smoothing: SmoothingOptions) -> None:
    for option, value in (
        ("--model", model.model),
        ("--deformation", smoothing.deformation),
        ("--noise", smoothing.noise),
    ):
        if not value:
            raise InputError(option, "missing", "is needed", "or name a run that has it by --run")
