"""Count the samples of three protocols: a fixed number, adaptive, and until radii are decided.

    python benchmarks/samples.py --out results/benchmarks/cpu.json
    python benchmarks/samples.py --model runs/cifar --data cifar10 --whole --out h200.json

Runs that are already stored are counted by `stored_runs.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.table import Table

from deformrs import Stopping, certify_dataset
from deformrs.cli.parameters import split_list
from deformrs.cli.throughput import N0, machine
from deformrs.config import Config
from deformrs.report.summary import count_certified
from deformrs.runs import Result
from deformrs.stopping import RadiusQuery
from record import Record
from subject import Options, Subject, load_subject, subject_options


@dataclass(frozen=True)
class Protocol:
    """One way to sample: at most `n` samples per image, evaluated at `radii`."""

    name: Literal["fixed", "adaptive", "decide"]
    query: str
    radii: tuple[str, ...]
    n: int
    stopping: Stopping | None = None


def protocols(n: int, radius: str, radii: tuple[str, ...], tolerance: str) -> list[Protocol]:
    """Return the protocols that are compared, the fixed one first."""
    every, query = tuple(dict.fromkeys((*radii, radius))), ", ".join(radii)
    adaptive = Stopping(tolerance=tolerance)
    return [
        Protocol("fixed", "", every, n),
        Protocol("adaptive", f"gain below {tolerance}", every, n, adaptive),
        Protocol("decide", radius, (radius,), n, Stopping(radii=(radius,))),
        Protocol("decide", query, radii, n, Stopping(radii=radii)),
        # Images that stay undecided to the end take half of all samples: is it worth it?
        Protocol("decide", query, radii, max(1, n // 10), Stopping(radii=radii)),
    ]


def measure(subject: Subject, chosen: Sequence[Protocol], count: int) -> Iterator[Config]:
    """Certify `count` images, spread over the dataset, by each protocol: its record entry."""
    stride = len(subject.images) // count
    fixed = next((protocol for protocol in chosen if protocol.name == "fixed"), None)
    reference: list[Result] | None = None
    for protocol in chosen:
        start = time.perf_counter()
        results = list(
            certify_dataset(
                subject.classifier,
                subject.images,
                n=protocol.n,
                n0=N0,
                skip=stride,
                max=stride * (count - 1) + 1,
                stopping=protocol.stopping,
            )
        )
        seconds = time.perf_counter() - start
        fixed_n = (fixed or protocol).n
        yield subject.names | summary(protocol, results, seconds, fixed_n, reference)
        reference = results if protocol is fixed else reference


def summary(
    protocol: Protocol,
    results: Sequence[Result],
    seconds: float,
    fixed_n: int,
    reference: Sequence[Result] | None,
) -> Config:
    """Return samples used and certified accuracy, against `fixed_n` samples for every image.

    `reference` holds the results of the same images with that fixed number, if there are any.
    """
    samples, images = sum(used(result) for result in results), len(results)
    certified = accuracies(protocol.radii, results)
    points: Config | None = None
    if reference is not None:
        before = accuracies(protocol.radii, reference)
        points = {radius: round(certified[radius] - before[radius], 4) for radius in certified}
    return {
        "protocol": protocol.name,
        "asked": protocol.query,
        "n": protocol.n,
        "pictures": images,
        "samples": samples,
        "per_picture": round(samples / images, 1),
        "share_of_fixed": samples / (images * (fixed_n + N0)),
        "certified": {**certified},
        "points_from_fixed": points,
        "seconds": round(seconds, 3),
        "samples_per_s": round(samples / seconds, 1),
    }


def accuracies(radii: Sequence[str], results: Sequence[Result]) -> dict[str, float]:
    """Return the certified accuracy in percent at each radius."""
    return {
        radius: round(100 * count_certified(results, RadiusQuery(radius)) / len(results), 4)
        for radius in radii
    }


def used(result: Result) -> int:
    """Return the number of samples of one image, selection included."""
    return result.certificate.counts.n0 + result.certificate.counts.n


def print_table(entries: Sequence[Config]) -> None:
    """Print samples per image and certified accuracy of each protocol."""
    table = Table(title="samples used, and certified accuracy in percent (points from fixed)")
    for name in ("protocol", "queries", "n", "images", "per image", "of fixed", "certified"):
        table.add_column(name)
    for entry in entries:
        certified, points = entry["certified"], entry["points_from_fixed"]
        assert isinstance(certified, dict)
        shares = [
            f"{radius} {share:.2f}"
            + (f" ({points[radius]:+.2f})" if isinstance(points, dict) else "")
            for radius, share in certified.items()
        ]
        table.add_row(
            str(entry["protocol"]),
            str(entry["asked"]),
            f"{entry['n']:,}",
            f"{entry['pictures']:,}",
            f"{entry['per_picture']:,}",
            f"1/{1 / float(str(entry['share_of_fixed'])):.1f}",
            ", ".join(shares),
        )
    Console().print(table)


@click.command()
@subject_options
@click.option("--n", default=1000, show_default=True, help="Samples per image at most.")
@click.option("--subset", default=100, show_default=True, help="Images for all protocols.")
@click.option("--whole", is_flag=True, help="Decide for all images of the dataset too.")
@click.option("--radius", default="10deg", show_default=True, help="Decided alone.")
@click.option("--radii", default="0deg,10deg,30deg,45deg", show_default=True)
@click.option("--tolerance", default="1deg", show_default=True, help="Of the adaptive protocol.")
@click.option("--out", type=click.Path(path_type=Path), help="The record to extend.")
def main(
    options: Options,
    n: int,
    subset: int,
    whole: bool,
    radius: str,
    radii: str,
    tolerance: str,
    out: Path | None,
) -> None:
    """Count the samples of each protocol."""
    chosen = protocols(n, radius, split_list(radii), tolerance)
    subject = load_subject(options)
    record = Record(machine(subject.device), out)
    passes = [(chosen, min(subset, len(subject.images)))]
    if whole:
        deciding = [protocol for protocol in chosen if protocol.name == "decide"]
        passes.append((deciding, len(subject.images)))
    entries = []
    for some, count in passes:
        for entry in measure(subject, some, count):
            entries.append(entry)
            record.add("samples_used", entry)
    print_table(entries)


if __name__ == "__main__":
    main()
