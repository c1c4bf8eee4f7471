"""`deformrs predict`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch

from deformrs.certificate import Certificate
from deformrs.cli.arguments import ModelOptions, SmoothingOptions, class_names_of
from deformrs.cli.certify import Sampling
from deformrs.cli.jobs import check_same_model, smooth
from deformrs.cli.options import (
    model_options,
    run_option,
    sampling_options,
    smoothing_options,
    typed,
)
from deformrs.data import load_image
from deformrs.errors import InputError, ModelError
from deformrs.geometry import size_of
from deformrs.rounding import format_down
from deformrs.runs import Result, read_config
from deformrs.smoothing import SmoothedClassifier
from deformrs.stopping import Query

if TYPE_CHECKING:
    from deformrs.cli.arguments import ModelOptions, SmoothingOptions


@dataclass(frozen=True)
class Answer:
    """What was found out about one file, or why nothing could be."""

    file: Path
    certificate: Certificate | None
    class_name: str | None
    held: dict[str, bool]
    """Regions that were asked for, and whether they are certified."""
    fault: InputError | ModelError | None = None

    @property
    def words(self) -> str:
        """`photo.jpg: tabby, holds for any rotation up to 27.31°`"""
        certificate = self.certificate
        if certificate is None:
            return f"{self.file}: {self.fault}"
        odds = f"(n = {certificate.counts.n:,}, alpha = {certificate.alpha})"
        if certificate.prediction is None:
            return f"{self.file}: abstains, no class is certain enough {odds}"
        name = self.class_name or f"class {certificate.prediction}"
        regions = "".join(
            f"; {text}: {'certified' if held else 'not certified'}"
            for text, held in self.held.items()
        )
        return f"{self.file}: {name}, holds for {certificate.reach}{regions} {odds}"

    @property
    def json(self) -> str:
        """The same for programs. Radii are in the package's own units."""
        c = self.certificate
        assert c is not None, "a file that could not be read has no answer"
        return json.dumps(
            {
                "file": str(self.file),
                "prediction": c.prediction,
                "class_name": self.class_name,
                "radii": {
                    block.family: radius
                    for block, radius in zip(c.space.blocks, c.radii, strict=True)
                },
                "holds_for": None if c.prediction is None else c.reach,
                "regions": self.held,
                "p_lower": float(format_down(c.p_lower, 12)),
                "n": c.counts.n,
                "alpha": c.alpha,
            },
            ensure_ascii=False,
        )


def predictions(
    files: Sequence[Path],
    model: ModelOptions,
    smoothing: SmoothingOptions,
    sampling: Sampling,
    questions: Sequence[Query] = (),
    run: Path | None = None,
) -> Iterator[Answer]:
    """One answer a file, in their order; a file that cannot be read is answered with its fault.

    With `run`, the model must still be the one of that run. An answer depends on the image and
    the seed, not on the other files.
    """
    loaded = model.load()
    names = loaded.class_names
    if run is not None:
        config = read_config(run)
        check_same_model(config, loaded, smoothing)
        names = names or class_names_of(config)
    classifier: SmoothedClassifier | None = None
    for file in files:
        try:
            image = torch.from_numpy(load_image(file, loaded.preparation))
            if classifier is None or "px" in smoothing.noise:  # pixels are counted on each image
                classifier = smooth(loaded, model, smoothing, image)
                for question in questions:
                    question.check(classifier.deformation.space(size_of(image)))
            certificate = classifier.certify(
                image,
                sampling.n,
                sampling.n0,
                sampling.alpha,
                sampling.seed,
                method=sampling.method,
            )
        except (InputError, ModelError) as fault:
            yield Answer(file, None, None, {}, fault)
            continue
        predicted = certificate.prediction
        name = names[predicted] if names is not None and predicted is not None else None
        # Whether the answer is right is not known here; what it covers is.
        result = Result(0, -1 if predicted is None else predicted, certificate)
        held = {question.text: question.holds(result) for question in questions}
        yield Answer(file, certificate, name, held)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@run_option
@model_options(required=False)
@smoothing_options(required=False)
@sampling_options(n=10_000)
@click.option("--region", "regions", multiple=True, help="Is this certified too?")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def predict(
    files: tuple[Path, ...],
    run: Path | None,
    model: ModelOptions,
    smoothing: SmoothingOptions,
    n: int,
    n0: int,
    alpha: float,
    seed: int,
    regions: tuple[str, ...],
    as_json: bool,
) -> None:
    """What is on these images, and how far may they be deformed?

    A model folder that deformrs train wrote brings its deformation and noise.

    \b
    Examples:
      deformrs predict digit.png --run runs/quickstart
      deformrs predict digit.png --model runs/quickstart --deformation translation \\
          --noise gaussian:2px --n 2000
    """
    from deformrs.cli.arguments import options_of
    from deformrs.cli.certify import Sampling
    from deformrs.cli.trained import find_trained
    from deformrs.stopping import parse_queries

    trained = find_trained(model.model, model.weights) if run is None else None
    if trained is not None:
        smoothing = trained.smoothing_for(smoothing, padding_given=typed("padding"))
    model, smoothing = options_of(run, model, smoothing)
    sampling = Sampling(n=n, n0=n0, alpha=alpha, seed=seed)
    asked = parse_queries((), regions)
    failed = 0
    for answer in predictions(files, model, smoothing, sampling, asked, run):
        if answer.fault is not None:
            failed += 1
            click.echo(f"error: {answer.fault}", err=True)
        else:
            click.echo(answer.json if as_json else answer.words)
    if failed:
        raise click.exceptions.Exit(1)
