"""Count the samples whose prediction changes with batch size, order or compilation.

    python benchmarks/agreement.py --out results/benchmarks/cpu.json

The noise is always the same; how a network rounds is not, except on a CPU in float32, uncompiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.cli.throughput import machine
from deformrs.config import Config
from deformrs.execution import Compiled
from deformrs.randomness import Span, Stage
from deformrs.sampling import Sampler
from record import Record
from subject import Options, Subject, load_subject, subject_options

SEED = 0
Classes = NDArray[np.intp]


def compare(subject: Subject, images: int, n: int) -> Iterator[Config]:
    """Execute `n` samples of each image in several ways, and compare each with the usual one."""
    classifier, usual = subject.classifier, subject.classifier.sampler
    stride = max(1, len(subject.images) // images)
    chosen = [subject.image(index) for index in range(0, len(subject.images), stride)[:images]]
    batch = torch.stack(chosen).to(subject.device)
    spans = [Span(index, Stage.PREDICT, 0, n, image=index) for index in range(len(batch))]
    expected = predictions_of(usual, batch, spans, n)

    def entry(path: str, sampler: Sampler, predictions: Classes) -> Config:
        differing = int((predictions != expected).sum())
        return subject.names | {
            "path": path,
            "batch_size": sampler.batch_size,
            "compiled": sampler.compiled,
            "beside_batch_size": usual.batch_size,
            "beside_compiled": usual.compiled,
            "samples": len(expected),
            "differing": differing,
            "per_million": round(1e6 * differing / len(expected), 1),
        }

    def other(batch_size: int, mode: Compiled) -> Sampler:
        return Sampler(
            classifier.model,
            classifier.deformation,
            classifier.noise,
            classifier.classes_for(batch[0]),
            padding=classifier.padding,
            batch_size=batch_size,
            compiled=mode,
        )

    yield entry("the same again", usual, predictions_of(usual, batch, spans, n))
    length = max(1, n // 8)
    turns = [span.part(k, min(k + length, n)) for k in range(0, n, length) for span in spans]
    # Named as in stored records.
    yield entry("pictures in turns", usual, predictions_of(usual, batch, turns, n))
    quarter = other(max(1, usual.batch_size // 4), usual.compiled)
    yield entry("a quarter of the batch", quarter, predictions_of(quarter, batch, spans, n))
    if usual.compiled != "no":
        plain = other(usual.batch_size, "no")
        yield entry("not compiled", plain, predictions_of(plain, batch, spans, n))


def predictions_of(sampler: Sampler, images: Tensor, spans: Iterable[Span], n: int) -> Classes:
    """Return the predicted class of every sample, image by image, whatever the spans' order."""
    singles = (
        Span(span.index, span.stage, k, k + 1, span.image, row=span.image * n + k)
        for span in spans
        for k in range(span.start, span.stop)
    )
    counts = sampler.count(images, singles, len(images) * n, seed=SEED)
    classes: Classes = counts.argmax(axis=1)
    return classes


@click.command()
@subject_options
@click.option("--images", default=20, show_default=True)
@click.option("--n", default=1000, show_default=True, help="Samples per image.")
@click.option("--out", type=click.Path(path_type=Path), help="The record to extend.")
def main(options: Options, images: int, n: int, out: Path | None) -> None:
    """Count differing predictions for each way of execution."""
    subject = load_subject(options)
    record = Record(machine(subject.device), out)
    for entry in compare(subject, images, n):
        record.add("paths", entry)
        print(f"{entry['path']}: {entry['differing']:,} of {entry['samples']:,} differ")


if __name__ == "__main__":
    main()
