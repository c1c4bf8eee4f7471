"""Counts over the results of a run: correct, abstained, certified, and average radii."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from deformrs.certificate import Certificate
from deformrs.errors import InputError, UnsupportedError
from deformrs.regions import Region
from deformrs.report.radii import Radius, radius_of
from deformrs.rounding import format_down, format_up, round_down
from deformrs.runs import CertifiedRun, Result
from deformrs.runs.folder import GENERATOR, TORCH
from deformrs.statistics import most_false, shared_noise
from deformrs.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
from deformrs.units import Unit, unit_px

_TAIL = 0.025
"""The probability beyond either end of an interval."""

FAILURE = 1e-3
"""The probability that more certificates of a run are false than `most_false_of` says."""

PHILOX = "philox"
"""The generator whose blocks never share a number, by its name in configurations."""

NOT_REQUESTED = "not requested"
"""Said of radii and regions for which a run's images did not have their samples."""


class Query(Protocol):
    """A radius or region that a certificate may cover."""

    def holds(self, result: Result) -> bool:
        """Return whether a result is correct and certified for this query."""
        ...


def count_certified(results: Iterable[Result], query: float | Query) -> int:
    """Return how many results are correct and certified at a radius, or for a query.

    A number is a radius in the package's own unit.
    """
    if isinstance(query, int | float):
        return sum(result.holds(query) for result in results)
    return sum(query.holds(result) for result in results)


@dataclass(frozen=True)
class Summary:
    """Exact counts over the images of a run, or of one class of it.

    `plain` is how often the base classifier is correct, None where it did not predict every
    image. `averages` are the average certified radii, one per block, in the displayed unit:
    wrong and abstaining predictions count as 0. `certified` has one count per radius.
    """

    total: int
    right: int
    abstained: int
    plain: int | None
    averages: tuple[Fraction, ...]
    certified: tuple[int, ...]

    def share_at(self, k: int) -> Fraction:
        """Return the certified accuracy at radius `k`."""
        return Fraction(self.certified[k], self.total)


def summarise(results: Sequence[Result], radii: Sequence[Radius] = ()) -> Summary:
    """Return the exact counts of these results, and averages that are not above the truth."""
    blocks = check_results(results).space.blocks
    right = [result for result in results if result.correct]
    known = all(result.plain is not None for result in results)
    return Summary(
        total=len(results),
        right=len(right),
        abstained=sum(result.certificate.prediction is None for result in results),
        plain=sum(result.plain == result.label for result in results) if known else None,
        averages=tuple(
            sum((radius_of(result, k) for result in right), Fraction(0)) / len(results)
            for k in range(len(blocks))
        ),
        certified=tuple(count_certified(right, radius) for radius in radii),
    )


def summarise_classes(
    results: Sequence[Result], radii: Sequence[Radius] = ()
) -> dict[int, Summary]:
    """Return a summary for each class that has an image."""
    classes: dict[int, list[Result]] = {}
    for result in results:
        classes.setdefault(result.label, []).append(result)
    return {label: summarise(classes[label], radii) for label in sorted(classes)}


@dataclass(frozen=True)
class RegionCount:
    """How many of `total` images are correct and certified for a region.

    `count` is None for `reason`: the region cannot be expressed in the run's deformation, or was
    not requested of a run that was only sampled until its queries were decided.
    """

    region: Region
    count: int | None
    total: int
    reason: str = ""


def count_region(results: Sequence[Result], region: Region) -> RegionCount:
    """Return how many images are correct and have a certificate that covers the region.

    Guarantee: counts only correct predictions whose certificate covers the whole region.
    """
    try:
        check_results(results).covers_region(region)
    except UnsupportedError as error:
        return RegionCount(region, None, len(results), str(error))
    correct = [result.certificate for result in results if result.correct]
    # Many images of a run share their counts, and with them the bound that decides.
    different = {(certificate.bound, certificate.space): certificate for certificate in correct}
    covering = {key for key, one in different.items() if one.covers_region(region)}
    count = sum((certificate.bound, certificate.space) in covering for certificate in correct)
    return RegionCount(region, count, len(results))


def interval(count: int, total: int) -> tuple[str, str]:
    """Return the exact 95 % Clopper-Pearson interval of a share in per cent, rounded outwards.

    >>> interval(18, 20)
    ('68.3', '98.8')
    """
    low = clopper_pearson_lower(count, total, _TAIL)
    high = clopper_pearson_upper(count, total, _TAIL)
    return format_down(100 * Fraction(low), 1), format_up(100 * Fraction(high), 1)


def most_false_of(run: CertifiedRun) -> int | None:
    """Return how many certificates of a run may be false; None where its noise does not tell.

    All requested images count, also those that are not certified yet or on which the classifier
    abstains: how many these are depends on the samples.

    Guarantee: if its images were chosen before they were sampled, more of them are false with
    probability at most `FAILURE`.
    """
    alpha, config = check_results(run.results).alpha, run.config
    images, failure = max(len(run), run.requested or 0), FAILURE
    generator, n0, n = config.get(GENERATOR, TORCH), config.get("n0"), config.get("n")
    if generator != PHILOX:
        # On a CPU, torch's generator takes 32 bits of a seed only: many images share noise.
        on_gpu = generator == TORCH and str(config.get("device")).startswith("cuda")
        if not (on_gpu and isinstance(n0, int) and isinstance(n, int)):
            return None
        failure = round_down(failure - shared_noise(images, n0 + n))
    return most_false(images, alpha, failure) if failure > 0 else None


def average_radius(results: Sequence[Result], k: int = 0) -> float:
    """Return the mean radius of block `k` over all images, in the package's own unit.

    The radius counts as 0 where the prediction is wrong or abstains.
    """
    check_results(results)
    total = math.fsum(result.certificate.radii[k] for result in results if result.correct)
    return max(0.0, round_down(total / len(results)))


def check_results(results: Sequence[Result]) -> Certificate:
    """Return the first certificate, which has the settings of all; raise if there is none."""
    if not results:
        raise InputError("the results", "empty", "must have at least one", "certify some images")
    return results[0].certificate


def noise_words(results: Sequence[Result]) -> str:
    """Return the noise of a run in words, lengths in pixels if all images agree on one."""
    first = results[0].certificate
    lengths = any(block.unit is Unit.LENGTH for block in first.space.blocks)
    sizes = {unit_px(result.certificate.space.size) for result in results}
    if lengths and len(sizes) > 1:
        return f"{first.law!r} noise, lengths in half the shorter side"
    return first.law.describe(first.space)
