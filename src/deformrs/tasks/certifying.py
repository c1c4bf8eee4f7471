"""A whole job on the terminal: look at the pictures, certify them, say what came of it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from rich.console import Console

from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.engines import certify_dataset, chosen
from deformrs.engines.groups import together_for
from deformrs.errors import InputError
from deformrs.progress import Rates, step
from deformrs.questions import Question, RadiusAsked, RegionAsked
from deformrs.report.people import noise_words, reach, shown_down
from deformrs.rounding import percent_down, percent_up
from deformrs.runs import Result
from deformrs.statistics import check_method
from deformrs.stopping import Stopping
from deformrs.tasks.jobs import Job


@dataclass(frozen=True)
class Sampling:
    """How many samples, how sure, which pictures.

    Without `fixed`, a picture gets no more samples than settle what is asked of it, if anything
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
        check_whole("n", self.n, least=1)
        check_whole("n0", self.n0, least=1)
        check_whole("skip", self.skip, least=1)
        if self.max is not None:
            check_whole("max", self.max, least=1)
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

    def stopping(self, questions: Sequence[Question]) -> Stopping | None:
        """When a picture has enough samples; None: when it has all n."""
        if self.fixed or (not questions and self.adaptive is None):
            return None
        return Stopping(
            radii=tuple(q.text for q in questions if isinstance(q, RadiusAsked)),
            regions=tuple(q.text for q in questions if isinstance(q, RegionAsked)),
            tolerance=self.adaptive,
        )


def certify_job(
    job: Job, sampling: Sampling, out: Path, console: Console, questions: Sequence[Question] = ()
) -> list[Result]:
    """Certify what the job asks into the run folder `out`, and show how it goes."""
    space = job.classifier.deformation.space(job.size)
    for question in questions:
        question.check(space)
    indices = chosen(len(job.pictures), sampling.skip, sampling.max)
    results: list[Result] = []
    stopping = sampling.stopping(questions)
    _warm_up(job, sampling.n, stopping, console)
    with step(console, "certifying", len(indices)) as advance:
        rates, tally = Rates(), Tally(questions)
        each = sampling.n0 + sampling.n
        begun = settled = 0

        def looked(count: int) -> None:
            advance(0, f"{count} pictures looked at")

        def watch(samples: int) -> None:
            nonlocal begun
            begun += samples
            rates.add(samples=samples)
            under_way = begun / each if stopping is None else settled
            done = min(len(results) + under_way, len(indices))
            advance(done, _joined(rates.words, tally.words))

        def enough(pictures: int) -> None:
            nonlocal settled
            settled += pictures
            rates.add(pictures=pictures)

        for result in certify_dataset(
            job.classifier,
            job.pictures,
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
            looked=looked,
            watch=watch,
            settled=enough,
        ):
            results.append(result)
            # Several may have been sampled together.
            if settled:
                settled -= 1
            elif stopping is None and begun >= each:
                begun -= each
                rates.add(pictures=1)
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
    image = torch.from_numpy(job.pictures[0][0])
    together = together_for(job.classifier, image, n, stopping)
    job.classifier.warm_up(image, together=together)
    if job.classifier.sampler.compiled == asked:
        console.print(f"compiled in {time.perf_counter() - began:.1f} s", markup=False)


class Tally:
    """How many results answer each question with yes, as they come."""

    def __init__(self, questions: Sequence[Question]) -> None:
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
    results: Sequence[Result], questions: Sequence[Question], *, averaged: bool = True
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
        held = sum(question.holds(result) for result in results)
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


def _is_zero(question: Question) -> bool:
    return isinstance(question, RadiusAsked) and not re.search("[1-9]", question.text)


def _samples(results: Sequence[Result]) -> str:
    numbers = [result.certificate.counts.n for result in results]
    if min(numbers) == max(numbers):
        return f"n = {numbers[0]:,}"
    mean = sum(numbers) / len(numbers)
    return f"n = {min(numbers):,} to {max(numbers):,} ({mean:,.0f} on average)"
