"""Answers for single picture files, in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from deformrs.certificate import Certificate
from deformrs.data import load_picture
from deformrs.errors import InputError, ModelError
from deformrs.geometry import size_of
from deformrs.questions import Question
from deformrs.rounding import format_down
from deformrs.runs import Result, read_config
from deformrs.smoothing import SmoothedClassifier
from deformrs.tasks.certifying import Sampling
from deformrs.tasks.jobs import check_same_model, smooth
from deformrs.tasks.options import ModelOptions, SmoothingOptions, class_names_of


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
    questions: Sequence[Question] = (),
    run: Path | None = None,
) -> Iterator[Answer]:
    """One answer a file, in their order; a file that cannot be read is answered with its fault.

    With `run`, the model must still be the one of that run. An answer depends on the picture and
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
            image = torch.from_numpy(load_picture(file, loaded.preparation))
            if classifier is None or "px" in smoothing.noise:  # pixels are counted on each picture
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
