"""Compare the bounds on class probabilities: certified accuracy, gap to the truth, and samples.

    python benchmarks/bounds.py                         # all three tables
    python benchmarks/bounds.py --only counts results/cifar10/affine-0.3
    python benchmarks/bounds.py --only steps --trials 200

- counts: the counts of stored runs with a fixed number of samples, certified anew by each method.
  This compares bounds and is no protocol: who computes several keeps one chosen beforehand.
- steps: how far the lower bounds lie below the truth, for step functions of one parameter.
- stopping: the samples that the stopping rule draws, by two methods, from the class frequencies of
  each image of a stored run.

Every figure is computed from committed runs and a fixed seed, so there is no record of them.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from deformrs import Rotation, SamplingPlan, Stopping, Uniform
from deformrs.certificate import Counts, PairedCounts
from deformrs.noise import NoiseLaw
from deformrs.report.radii import Radius
from deformrs.report.summary import count_certified, summarise
from deformrs.rule import MOVING, Rule
from deformrs.runs import Result, StoredRun, read_run, runs_in
from deformrs.space import Space
from deformrs.statistics import Method
from deformrs.statistics.bounds import clopper_pearson_lower
from deformrs.statistics.stratified import stratified_lower
from deformrs.units import Unit

RESULTS = Path(__file__).resolve().parent.parent / "results"
METHODS = ("clopper_pearson", "runner_up", "auto")
SIZES, JUMPS = (1000, 5000, 20_000), (1, 2, 3, 4, 5, 6)
ALPHA, N0 = 0.001, 100
ROTATIONS = Rotation().space((28, 28))
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
TableName = Literal["counts", "steps", "stopping"]


def fixed_runs(folders: Sequence[Path]) -> Iterator[StoredRun]:
    """Yield the runs in these folders that have a fixed number of samples."""
    for folder in folders:
        for found in runs_in(folder):
            run = read_run(found)
            if "stopping" not in run.config:
                yield run


def paper_radii(run: StoredRun) -> list[Radius]:
    """Return the radii of the paper's tables for the data and the deformation of a run."""
    block, size = run.results[0].certificate.space.blocks[0], run.results[0].certificate.space.size
    dataset = run.folder.resolve().parent.name
    with (RESULTS / "paper" / "numbers.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["dataset"], row["deformation"]) == (dataset, block.family)
        ]
    suffixes = {"fraction": "", "1": ""}
    texts = {row["radius"] + suffixes.get(row["unit"], row["unit"]) for row in rows}
    radii = [Radius(text, block) for text in texts if text[:1].isdigit()]
    return sorted(radii, key=lambda radius: radius.value(size))


def certified_anew(results: Sequence[Result], method: str) -> list[Result]:
    """Return the results of the same counts by another method."""
    known: dict[tuple[Counts, Space], Result] = {}
    anew = []
    for result in results:
        own = result.certificate
        key = own.counts, own.space
        if key not in known:
            assert isinstance(own.law, NoiseLaw)
            certificate = own.law.certify(own.counts, own.space, own.alpha, method)
            known[key] = dataclasses.replace(result, certificate=certificate)
        anew.append(dataclasses.replace(result, certificate=known[key].certificate))
    return anew


def counts_table(run: StoredRun) -> Table:
    """Return the certified accuracy and average radius of a run's counts by each method."""
    first = run.results[0].certificate
    title = f"{_name(run)}: {len(run.results):,} images, n = {first.counts.n:,}"
    table = Table("radius", *METHODS, title=title)
    radii = paper_radii(run)
    by_method = [certified_anew(run.results, method) for method in METHODS]
    for radius in radii:
        counts = [count_certified(results, radius) for results in by_method]
        if any(counts):
            table.add_row(radius.label, *(f"{100 * c / len(run.results):.2f} %" for c in counts))
    averages = [summarise(results).averages[0] for results in by_method]
    symbol = first.space.blocks[0].unit.symbol
    digits = 4 if first.space.blocks[0].unit is Unit.COEFFICIENT else 2
    table.add_row("average", *(f"{float(value):.{digits}f}{symbol}" for value in averages))
    return table


@dataclass(frozen=True)
class Steps:
    """A function on [0, 1) that is 1 (a hit) or 0 and changes at `jumps`, in rising order."""

    first: int
    jumps: Floats

    def __call__(self, points: Floats) -> Integers:
        """Return the values at these points."""
        return (self.first + np.searchsorted(self.jumps, points, side="right")) % 2

    @property
    def mean(self) -> float:
        """The probability of a hit at a random point."""
        lengths = np.diff(self.jumps, prepend=0.0, append=1.0)
        return float(lengths[(self.first + np.arange(len(lengths))) % 2 == 1].sum())

    def round(self, cells: int, rng: np.random.Generator) -> tuple[int, int]:
        """Return the hits of two draws in each of equal cells, and the pairs that disagree."""
        draws = self((np.arange(cells)[:, None] + rng.random((cells, 2))) / cells)
        return int(draws.sum()), int((draws[:, 0] != draws[:, 1]).sum())


def bounds_of(function: Steps, n: int, rng: np.random.Generator) -> list[float]:
    """Return lower bounds from at most n samples: by independent ones, by one round, and as
    images are sampled that no query lets stop."""
    hits = int(rng.binomial(n, function.mean))
    pairs, differing = function.round(n // 2, rng)
    bounds = [
        clopper_pearson_lower(hits, n, ALPHA),
        stratified_lower(pairs, n // 2 * 2, differing, ALPHA),
    ]
    rule = SamplingPlan(n=n, stopping=Stopping(radii=(0.0,))).rule(Uniform(0.5), ROTATIONS)
    assert rule is not None
    if rule.stratified:
        bounds.append(_as_sampled(function, rule, rng))
    return bounds


def _as_sampled(function: Steps, rule: Rule, rng: np.random.Generator) -> float:
    draws = function(rng.random(rule.looks[-1]))
    moves = (k for k in rule.looks if k >= MOVING and draws[:k].sum() < k)
    trials = next(moves, rule.looks[-1])
    total = differing = 0
    for start, end in pairwise((rule.first, *rule.rounds)):
        hits, pairs = function.round((end - start) // 2, rng)
        total, differing = total + hits, differing + pairs
    hits, paired = int(draws[:trials].sum()), rule.rounds[-1] - rule.first
    counts = Counts(
        (0, N0), (trials - hits, hits), PairedCounts((paired - total, total), (differing,) * 2)
    )
    return Method.parse("stratified").bound(counts, ALPHA).lower


def steps_table(trials: int, seed: int) -> Table:
    """Return how far each bound lies below the truth on average, and how often above."""
    columns = ("n", "Clopper-Pearson", "one round", "as sampled", "above the truth")
    title = f"mean of p minus its lower bound, {trials:,} step functions with 1 to 6 steps"
    table = Table(*columns, title=title)
    for n in SIZES:
        rng = np.random.default_rng([seed, n])
        gaps = []
        for trial in range(trials):
            jumps = np.sort(rng.random(JUMPS[trial % len(JUMPS)]))
            function = Steps(int(rng.integers(2)), jumps)
            gaps.append([function.mean - bound for bound in bounds_of(function, n, rng)])
        means = [f"{value:.5f}" for value in np.mean(gaps, axis=0)]
        failures = [f"{count}" for count in (np.array(gaps) < 0).sum(axis=0)]
        cells = [*means, *["–"] * (3 - len(means))]
        table.add_row(f"{n:,}", *cells, " / ".join(failures))
    return table


@dataclass(frozen=True)
class Drawn:
    """What the stopping rule did: samples and certified queries of each image."""

    samples: Integers
    certified: NDArray[np.bool_]


def stop(
    rule: Rule, selection: Integers, counts: dict[int, Integers], labels: Integers, alpha: float
) -> Drawn:
    """Sample until the rule stops: `counts` holds those after each number of samples, [m, K]."""
    final, open_ = counts[rule.n].copy(), np.ones(len(selection), dtype=bool)
    for at in (counts[end] for end in rule.looks):
        rows = np.flatnonzero(open_)
        done = rows[rule.decided(selection[rows], at[rows])]
        final[done], open_[done] = at[done], False
    certified = []
    for row, label in enumerate(labels.tolist()):
        own = Counts(tuple(selection[row].tolist()), tuple(final[row].tolist()))
        certificate = rule.law.certify(own, rule.space, alpha, rule.method.name)
        right = certificate.prediction == label
        certified.append([right and certificate.radius >= radius for radius in rule.radii])
    return Drawn(final.sum(axis=1), np.array(certified))


def stopping_table(run: StoredRun, every: int, seed: int) -> Table:
    """Return samples per image and certified accuracy by both methods, for the paper's radii."""
    results = run.results[::every]
    first = results[0].certificate
    law, space, alpha, n = first.law, first.space, first.alpha, first.counts.n
    assert isinstance(law, NoiseLaw)
    selection = np.array([result.certificate.counts.selection for result in results])
    estimation = np.array([result.certificate.counts.estimation for result in results])
    labels = np.array([result.label for result in results])
    rng = np.random.default_rng(seed)
    methods = [Method.parse(name) for name in (f"anytime:{n}", f"anytime_auto:{n}")]
    title = f"{_name(run)}: {len(results):,} images, at most {n:,} samples, before → now"
    columns = ("decided", "samples per image", "images with more", "certified, %")
    table = Table(*columns, title=title)
    radii = [radius for radius in paper_radii(run) if radius.value(space.size) > 0]
    radii = [r for r in radii if any(result.holds(r.value(space.size)) for result in results)]
    for query in (radii, *([radius] for radius in radii)):
        stopping = Stopping(radii=tuple(radius.text for radius in query))
        rules = [stopping.rule(law, space, alpha, n, method) for method in methods]
        ends = sorted({end for rule in rules for end in rule.looks})
        more = [rng.multinomial(b - a, estimation / n) for a, b in pairwise((0, *ends))]
        counts = dict(zip(ends, np.cumsum(more, axis=0), strict=True))
        before, now = (stop(rule, selection, counts, labels, alpha) for rule in rules)
        shares = [
            " → ".join(f"{100 * drawn.certified[:, k].mean():.2f}" for drawn in (before, now))
            for k in range(len(query))
        ]
        table.add_row(
            ", ".join(radius.label for radius in query),
            f"{before.samples.mean():,.0f} → {now.samples.mean():,.0f}",
            f"{(now.samples > before.samples).sum():,}",
            ", ".join(shares),
        )
    return table


def _name(run: StoredRun) -> str:
    return "/".join(run.folder.resolve().parts[-2:])


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--only", type=click.Choice(get_args(TableName)), help="This table alone.")
@click.option("--trials", default=2000, show_default=True, help="Step functions.")
@click.option("--every", default=5, show_default=True, help="Of the images that stop, every K-th.")
@click.option("--seed", default=0, show_default=True)
def main(
    folders: tuple[Path, ...], only: TableName | None, trials: int, every: int, seed: int
) -> None:
    """Compare bounds on the runs in FOLDERS, by default all with a fixed number of samples."""
    console = Console()
    runs = [RESULTS / name for name in ("mnist", "cifar10", "imagenet")]
    for run in fixed_runs(folders or runs) if only != "steps" else ():
        if only != "stopping":
            console.print(counts_table(run))
        if only != "counts":
            console.print(stopping_table(run, every, seed))
    if only in (None, "steps"):
        console.print(steps_table(trials, seed))


if __name__ == "__main__":
    main()
