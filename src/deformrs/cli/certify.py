"""`deformrs certify`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console

from deformrs.checks import check_alpha, check_integer, check_seed
from deformrs.cli.jobs import Job
from deformrs.cli.options import (
    check_writable,
    choosing_options,
    data_options,
    model_options,
    sampling_options,
    smoothing_options,
    split_list,
    stopping_options,
    typed,
)
from deformrs.cli.progress import Rates, step
from deformrs.dataset import certify_dataset, images_together, select_indices
from deformrs.errors import InputError
from deformrs.plan import SamplingPlan
from deformrs.report.people import noise_words, reach, shown_down
from deformrs.report.summary import count_certified
from deformrs.rounding import percent_down, percent_up
from deformrs.runs import Result
from deformrs.sampling import Progress
from deformrs.statistics import check_method
from deformrs.stopping import Query, RadiusQuery, RegionQuery, Stopping

if TYPE_CHECKING:
    from deformrs.cli.arguments import DataOptions, ModelOptions, SmoothingOptions


@dataclass(frozen=True)
class Sampling:
    """How many samples, how sure, which images.

    Without `fixed`, an image gets no more samples than settle what is asked of it, if anything
    is: questions, or a radius that more samples would raise by less than `adaptive`.
    """

    n: int = 100_000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0
    method: str | None = None
    skip: int = 1
    max: int | None = None
    adaptive: str | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        # Before a network is loaded, not after it.
        check_integer("n", self.n, least=1)
        check_integer("n0", self.n0, least=1)
        check_integer("skip", self.skip, least=1)
        if self.max is not None:
            check_integer("max", self.max, least=1)
        check_alpha(self.alpha)
        check_seed("seed", self.seed)
        if self.method is not None:
            check_method(self.method)
        if self.fixed and self.adaptive is not None:
            raise InputError(
                "adaptive",
                repr(self.adaptive),
                "cannot be had with a fixed number of samples",
                "leave one of the two out",
            )

    def stopping(self, questions: Sequence[Query]) -> Stopping | None:
        """When an image has enough samples; None: when it has all n."""
        if self.fixed or (not questions and self.adaptive is None):
            return None
        return Stopping(
            radii=tuple(q.text for q in questions if isinstance(q, RadiusQuery)),
            regions=tuple(q.text for q in questions if isinstance(q, RegionQuery)),
            tolerance=self.adaptive,
        )


def certify_job(
    job: Job, sampling: Sampling, out: Path, console: Console, questions: Sequence[Query] = ()
) -> list[Result]:
    """Certify what the job asks into the run folder `out`, and show how it goes."""
    space = job.classifier.deformation.space(job.size)
    for question in questions:
        question.check(space)
    indices = select_indices(len(job.images), sampling.skip, sampling.max)
    results: list[Result] = []
    stopping = sampling.stopping(questions)
    _warm_up(job, sampling.n, stopping, console)
    with step(console, "certifying", len(indices)) as advance:
        rates, tally = Rates(), Tally(questions)
        each = sampling.n0 + sampling.n
        begun = settled = 0

        def looked(count: int) -> None:
            advance(0, f"{count} images looked at")

        def watch(samples: int) -> None:
            nonlocal begun
            begun += samples
            rates.add(samples=samples)
            under_way = begun / each if stopping is None else settled
            done = min(len(results) + under_way, len(indices))
            advance(done, _joined(rates.words, tally.words))

        def enough(images: int) -> None:
            nonlocal settled
            settled += images
            rates.add(images=images)

        for result in certify_dataset(
            job.classifier,
            job.images,
            n=sampling.n,
            n0=sampling.n0,
            alpha=sampling.alpha,
            seed=sampling.seed,
            method=sampling.method,
            stopping=stopping,
            skip=sampling.skip,
            max=sampling.max,
            out=out,
            about=job.about,
            same_size=job.noise_in_pixels,
            progress=Progress(checked=looked, sampled=watch, decided=enough),
        ):
            results.append(result)
            # Several may have been sampled together.
            if settled:
                settled -= 1
            elif stopping is None and begun >= each:
                begun -= each
                rates.add(images=1)
            tally.add(result)
            advance(len(results), _joined(rates.words, tally.words))
    return results


def _warm_up(job: Job, n: int, stopping: Stopping | None, console: Console) -> None:
    """Compile before the clock of the samples starts, and say how long it took."""
    asked = job.classifier.sampler.compiled
    if asked == "no":
        return
    console.print(f"compiling ({asked}) …", markup=False)
    began = time.perf_counter()
    image = torch.from_numpy(job.images[0][0])
    together = images_together(job.classifier, image, SamplingPlan(n, stopping=stopping))
    job.classifier.warm_up(image, together=together)
    if job.classifier.sampler.compiled == asked:
        console.print(f"compiled in {time.perf_counter() - began:.1f} s", markup=False)


class Tally:
    """How many results answer each question with yes, as they come."""

    def __init__(self, questions: Sequence[Query]) -> None:
        self._held = dict.fromkeys(questions, 0)
        self._total = 0

    def add(self, result: Result) -> None:
        self._total += 1
        for question in self._held:
            self._held[question] += question.holds(result)

    @property
    def words(self) -> str:
        """`93.1 % up to 10deg, 88.0 % up to 30deg`, or nothing."""
        if not self._total:
            return ""
        return ", ".join(
            f"{percent_down(held, self._total)} % {question.words}"
            for question, held in self._held.items()
        )


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))


def summary(
    results: Sequence[Result], questions: Sequence[Query], *, averaged: bool = True
) -> list[str]:
    """What came of it, a line each.

    Without `averaged` there is no average radius: where sampling stops when a radius is settled,
    it would say little.
    """
    total = len(results)
    first = results[0].certificate
    abstained = sum(result.certificate.prediction is None for result in results)

    def share(count: int) -> str:
        return f"{percent_down(count, total):>6} %   {count} of {total}"

    # Where sampling stops when other radii are settled, whether it abstains is not.
    so_far = "" if averaged or any(_is_zero(q) for q in questions) else "   when sampling stopped"
    lines = [
        f"{noise_words(results)}, {_samples(results)}, alpha = {first.alpha}",
        f"  model alone is right          {share(sum(r.plain == r.label for r in results))}",
        f"  smoothed model is right       {share(sum(r.correct for r in results))}" + so_far,
        f"  abstains                      {percent_up(abstained, total):>6} %   "
        f"{abstained} of {total}" + so_far,
    ]
    for question in questions:
        held = count_certified(results, question)
        lines.append(f"  right, certified {question.words:<12} {share(held)}")
    if len(first.radii) == 1 and averaged:
        block = first.space.blocks[0]
        radii = [
            reach(block, result.certificate.radius, result.certificate.space.size)
            for result in results
            if result.correct
        ]
        mean = shown_down(sum(radii, Fraction()) / total, block.unit)
        lines.append(f"  average certified radius      {mean:>8}")
    return lines


def _is_zero(question: Query) -> bool:
    return isinstance(question, RadiusQuery) and not re.search("[1-9]", question.text)


def _samples(results: Sequence[Result]) -> str:
    numbers = [result.certificate.counts.n for result in results]
    if min(numbers) == max(numbers):
        return f"n = {numbers[0]:,}"
    mean = sum(numbers) / len(numbers)
    return f"n = {min(numbers):,} to {max(numbers):,} ({mean:,.0f} on average)"


@click.command()
@model_options(required=True)
@data_options(required=False)
@smoothing_options(required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run folder; one that was stopped is taken up.  [the model's own, if it was trained; "
    "for images held out, held-out/ in it]",
)
@sampling_options(n=100_000)
@choosing_options
@stopping_options
@click.option(
    "--export", type=click.Path(path_type=Path), help="Also write idx, label, predict, … as TSV."
)
def certify(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None,
    n: int,
    n0: int,
    alpha: float,
    seed: int,
    method: str | None,
    skip: int,
    most: int | None,
    radii: str | None,
    regions: tuple[str, ...],
    adaptive: str | None,
    fixed: bool,
    export: Path | None,
) -> None:
    """Certify labelled images: how far may each be deformed?

    With --radii or --region an image is sampled until each is settled, at most --n times: some
    tens of samples are enough for most. --adaptive stops where more samples would raise the
    radius by less. Without them, or with --fixed, every image gets --n samples.

    Interrupt it as you like: the same command goes on where it stopped. A folder that deformrs
    train wrote needs no further options: it is certified on the test split of its data, against
    the deformation and the noise it was trained with; with --split held-out on the images that
    --hold-out kept from it, which are there to choose by. What is given wins. Of a network of your
    own, name the file and the weights: --model net.py:build --weights RUN/model.safetensors.

    \b
    Examples:
      deformrs certify --model runs/quickstart --data digits --deformation rotation \\
          --noise uniform:90deg --n 1000 --max 20 --radii 10deg,30deg --out runs/digits
      deformrs certify --model runs/quickstart --data digits --n 1000 --max 20 \\
          --deformation rotation+scaling --noise uniform:60deg+uniform:30% \\
          --region "rotation<=5deg, scale=0.95..1.05" --out runs/both
      deformrs certify --model timm:resnet18 --data photos/ --deformation rotation \\
          --noise uniform:30deg --out runs/photos
    """
    from rich.console import Console

    from deformrs.cli.jobs import prepare
    from deformrs.cli.progress import Downloads
    from deformrs.cli.trained import certification
    from deformrs.report.export import export_tsv
    from deformrs.runs import read_times, write_atomically
    from deformrs.stopping import parse_queries

    console = Console(highlight=False)
    check_writable("--export", export)
    asked = parse_queries(split_list(radii), regions)
    sampling = Sampling(
        n=n,
        n0=n0,
        alpha=alpha,
        seed=seed,
        method=method,
        skip=skip,
        max=most,
        adaptive=adaptive,
        fixed=fixed,
    )
    asked_for = certification(model, data, smoothing, out, padding_given=typed("padding"))
    out = asked_for.out
    with Downloads(console) as fetched:
        job = prepare(model, asked_for.data, asked_for.smoothing, out, fetched)
    if asked_for.trained is not None and asked_for.trained.has_seen(job.images):
        click.echo(
            "note: these are the images it was trained on; certified accuracy on them says little",
            err=True,
        )
    console.print(job.execution, markup=False, soft_wrap=True)
    results = certify_job(job, sampling, out, console, asked)
    stopping = sampling.stopping(asked)
    averaged = stopping is None or stopping.tolerance is not None
    for line in summary(results, asked, averaged=averaged):
        console.print(line, markup=False, soft_wrap=True)
    if export is not None:
        write_atomically(export, export_tsv(results, read_times(out)))
        console.print(f"\nwritten: {export}", markup=False, soft_wrap=True)
    console.print(f"\nnext: deformrs report {out}", markup=False, soft_wrap=True)
