"""`deformrs certify`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import click
from rich.console import Console

from deformrs.chance import AccuracyWatch
from deformrs.cli.defaults import certification
from deformrs.cli.jobs import JobLoader, prepare, resume
from deformrs.cli.options import (
    DataOptions,
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    certification_options,
    data_options,
    engine_options,
    model_options,
    smoothing_options,
)
from deformrs.cli.overview import Overview, row
from deformrs.cli.parameters import is_typed, split_list
from deformrs.cli.progress import Advance, Downloads, step
from deformrs.cli.terminal import echo, print_plain
from deformrs.config import Config
from deformrs.dataset import begin, run_method, run_seed, select_indices
from deformrs.engines import Engine
from deformrs.errors import InputError, quoted
from deformrs.geometry import size_of
from deformrs.job import Job
from deformrs.report.captions import region_example, set_words
from deformrs.report.radii import radius_of
from deformrs.report.summary import count_certified, noise_words
from deformrs.rounding import format_alpha, percent_down, percent_up
from deformrs.runs import CertifiedRun, Result, read_config
from deformrs.runs.folder import begun_config
from deformrs.sampling import Progress
from deformrs.stopping import Query, RadiusQuery, parse_queries
from deformrs.units import unit_px


@click.command()
@model_options(required=True)
@data_options(required=False)
@smoothing_options(required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run folder; an interrupted run there is resumed.  [the model's own, if deformrs "
    "train wrote it; held-out/ in it for --split held-out]",
)
@certification_options(n=100_000)
@engine_options()
@click.option(
    "--dry-run",
    is_flag=True,
    help="Stop after saying what would be certified and how long it would take; write nothing.",
)
def certify(
    model: ModelOptions,
    data: DataOptions,
    smoothing: SmoothingOptions,
    out: Path | None,
    radii: str | None,
    regions: tuple[str, ...],
    sampling: SamplingOptions,
    engine: EngineOptions,
    dry_run: bool,
) -> None:
    """Certify labelled images: how far may each be deformed?

    With --radii or --region an image is sampled until each of them is decided, at most --n times;
    a few dozen samples are enough for most images. --adaptive stops where more samples would raise
    the radius by less than that. Without these options every image gets --n samples.

    Interrupt it at any time: the same command resumes it. A folder that deformrs train wrote needs
    no further options: it is certified on the test split of its data (with --split held-out, on
    the images that --hold-out kept from training), against the deformation and the noise it was
    trained with. Options that you give win. For a network of your own, name the file and the
    weights: --model net.py:build --weights RUN/model.safetensors.

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
    console = Console(highlight=False)
    queries = parse_queries(split_list(radii), regions)
    task = certification(model, data, smoothing, out, padding_given=is_typed("padding"))
    load = JobLoader(resume(model, task.out), task.smoothing)
    with Downloads(console) as downloads:
        job = prepare(
            model, task.data, task.smoothing, task.out, downloads, elsewhere=engine.is_remote
        )
    if task.data.split == "train" and job.images.about["split"] is None:
        raise InputError(
            "--split",
            "train",
            f"must be a split of the data; {task.data.data} has none",
            "leave it out",
        )
    if task.trained is not None and task.trained.has_seen(job.images):
        echo(
            "note: the model was trained on these images; their certified accuracy says little",
            err=True,
        )
    totals = certify_job(
        job,
        sampling,
        task.out,
        console,
        queries,
        engine=engine.build(load),
        together=engine.together,
        dry_run=dry_run,
    )
    if totals is None:
        return
    stopping = sampling.stopping(queries)
    averaged = not stopping or bool(stopping.tolerance)
    print_plain(console, *totals.lines(averaged=averaged))
    together = set_words(totals.run(read_config(task.out)))
    print_plain(console, *([f"  {together}"] if together else []))
    blocks = totals.first.certificate.space.blocks
    region = "" if queries or len(blocks) == 1 else region_example(blocks)
    query = f' --region "{region}"' if region else ""
    print_plain(console, "", f"next: deformrs report {quoted(task.out)}{query}")


def certify_job(
    job: Job,
    sampling: SamplingOptions,
    out: Path,
    console: Console,
    queries: Sequence[Query] = (),
    *,
    engine: Engine | None = None,
    together: int | None = None,
    dry_run: bool = False,
) -> Totals | None:
    """Certify the images of a job into the run folder `out`, and show the progress.

    Before the first sample it says what is certified and how long that will take; a dry run stops
    there, writes nothing and returns None.
    """
    is_new = sampling.seed is None and begun_config(out) is None
    if sampling.method == "bonferroni" and begun_config(out) is None:
        raise InputError(
            "--method",
            "'bonferroni'",
            "is for runs that began with it",
            "use runner_up, which bounds the other classes more sharply, or auto",
        )
    method = run_method(out, sampling.method, sampling.n)
    sampling = replace(sampling, seed=run_seed(out, sampling.seed), method=method)
    space = job.classifier.deformation.space(size_of(job.first_image))
    for query in queries:
        query.check(space)
    stopping = sampling.stopping(queries)
    labels = job.images.labels
    indices = select_indices(len(job.images), sampling.skip, sampling.max, labels)
    total = len(indices)
    display = _Display(queries, total, sampling.n0 + sampling.n if stopping is None else None)
    compiled, began = job.classifier.sampler.compiled, time.perf_counter()
    if compiled != "no":
        print_plain(console, f"compiling ({compiled}) …")
    if engine is not None:
        print_plain(console, "starting workers …")
    plan, total_alpha = sampling.plan(queries), None
    config, results = begin(
        job.classifier,
        job.images,
        plan,
        skip=sampling.skip,
        max=sampling.max,
        simultaneous=sampling.simultaneous,
        out=out,
        about=job.about,
        same_size=job.noise_in_pixels,
        together=together,
        engine=engine,
        progress=display.progress,
    )
    if compiled != "no" and job.classifier.sampler.compiled == compiled:
        print_plain(console, f"compiled in {time.perf_counter() - began:.1f} s")
    if sampling.simultaneous:
        plan, total_alpha = plan.shared(total), plan.alpha
    overview = Overview(
        job,
        plan,
        queries,
        indices,
        out,
        config,
        random_seed=dry_run and is_new,
        total_alpha=total_alpha,
    )
    if overview.left:
        print_plain(console, *overview.lines)
        if engine is None:
            print_plain(console, *overview.cost(overview.measured_speed()))
        else:
            print_plain(console, row("time", "not estimated: workers sample at their own speed"))
        print_plain(console, *overview.remarks)
    else:
        print_plain(console, f"all {total:,} images are certified already: read from {out}")
    if dry_run:
        return None
    watch = AccuracyWatch(total, job.num_classes, overview.likely_causes, _warn)
    with step(console, "certifying", total) as display.advance:
        for result in results:
            display.add(result)
            watch.add(result)
    return display.totals


def _warn(text: str) -> None:
    echo(*f"warning: {text}".split("\n"), err=True)


class _Display:
    """Images done, speed, and how many of the results so far certify each query."""

    advance: Advance

    def __init__(self, queries: Sequence[Query], total: int, samples_per_image: int | None) -> None:
        self.totals = Totals(queries)
        self._total = total
        self._samples_per_image = samples_per_image
        self._began = time.monotonic()
        # Several images may be sampled together, before the result of the first.
        self._sampled = self._decided = 0
        # Of this process, without what was read from the folder.
        self._own_samples = self._own_images = 0
        self._workers = ""

    @property
    def progress(self) -> Progress:
        return Progress(self.checked, self.sampled, self.decided, self.resumed, self.working)

    def checked(self, images: int) -> None:
        self.advance(0, f"{images} images checked")

    def sampled(self, samples: int) -> None:
        self._sampled += samples
        self._own_samples += samples
        self._show()

    def resumed(self, samples: int) -> None:
        self._sampled += samples

    def decided(self, images: int) -> None:
        self._decided += images
        self._own_images += images

    def working(self, words: str) -> None:
        self._workers = words

    def add(self, result: Result) -> None:
        self.totals.add(result)
        if self._samples_per_image is None:
            self._decided = max(0, self._decided - 1)
        elif self._sampled >= self._samples_per_image:  # not read from the folder
            self._sampled -= self._samples_per_image
        self._show()

    def _show(self) -> None:
        ahead, own = float(self._decided), float(self._own_images)
        if self._samples_per_image is not None:
            ahead = self._sampled / self._samples_per_image
            own = self._own_samples / self._samples_per_image
        words = []
        if self._own_samples:
            seconds = max(time.monotonic() - self._began, 1e-9)
            words.append(f"{own / seconds:.3g} img/s")
            words.append(f"{self._own_samples / seconds:,.0f} samples/s")
        words += [self._workers] if self._workers else []
        done = self.totals.images
        if done:
            words += [
                f"{percent_down(count, done)} % {query.words}"
                for query, count in self.totals.certified.items()
            ]
        self.advance(min(done + ahead, self._total), ", ".join(words))


class Totals:
    """The counts of a run, added up as its results come: they are too many to be kept."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.images = self.right = self.abstained = self.plain_right = self.samples = 0
        self.certified = dict.fromkeys(queries, 0)
        self.least, self.most = 10**18, 0
        self._radii = Fraction(0)
        self._sizes: dict[float, Result] = {}
        """A result for each number of pixels in a unit."""

    def add(self, result: Result) -> None:
        """Count one more result."""
        certificate, n = result.certificate, result.certificate.counts.n
        self.images += 1
        self.right += result.correct
        self.abstained += certificate.prediction is None
        self.plain_right += result.plain == result.label
        self.samples += n
        self.least, self.most = min(self.least, n), max(self.most, n)
        for query in self.certified:
            self.certified[query] += count_certified([result], query)
        if result.correct:
            self._radii += radius_of(result, 0)
        self._sizes.setdefault(unit_px(certificate.space.size), result)

    @property
    def first(self) -> Result:
        """The first result."""
        return next(iter(self._sizes.values()))

    def run(self, config: Config) -> CertifiedRun:
        """Return a run of as many results, each of which stands for its settings alone."""
        return CertifiedRun(config, [self.first] * self.images)

    def lines(self, *, averaged: bool = True) -> list[str]:
        """Return the summary of the run, as lines.

        The average radius is left out unless `averaged`: where sampling stops once queries are
        decided, it would say little.
        """
        first, queries = self.first.certificate, self.certified
        # Where sampling stops once other radii are decided, abstention is not.
        zero = any(isinstance(q, RadiusQuery) and not re.search("[1-9]", q.text) for q in queries)
        so_far = "" if averaged or zero else "   when sampling stopped"
        noise, alpha = noise_words([*self._sizes.values()]), format_alpha(first.alpha)
        abstained = percent_up(self.abstained, self.images)
        lines = [
            f"{noise}, {self._n}, alpha = {alpha}",
            f"  model alone is right          {self._share(self.plain_right)}",
            f"  smoothed model is right       {self._share(self.right)}{so_far}",
            f"  abstains                      {abstained:>6} %   "
            f"{self.abstained} of {self.images}{so_far}",
        ]
        for query, count in queries.items():
            lines.append(f"  right, certified {query.words:<12} {self._share(count)}")
        if len(first.radii) == 1 and averaged:
            mean = first.space.blocks[0].unit.format_down(self._radii / self.images)
            lines.append(f"  average certified radius      {mean:>8}")
        return lines

    def _share(self, count: int) -> str:
        return f"{percent_down(count, self.images):>6} %   {count} of {self.images}"

    @property
    def _n(self) -> str:
        if self.least == self.most:
            return f"n = {self.most:,}"
        mean = self.samples / self.images
        return f"n = {self.least:,} to {self.most:,} ({mean:,.0f} on average)"
