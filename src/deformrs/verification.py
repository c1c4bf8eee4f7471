"""Verification of a run: its images are unchanged, and the model still gives their counts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deformrs.bars import CertificationBar, Progress, ProgressChoice
from deformrs.checks import check_integer
from deformrs.config import Config
from deformrs.dataset import select_indices
from deformrs.errors import InputError, ModelError
from deformrs.fingerprints import classifier_config
from deformrs.inputs import Dataset, LabelledImages, as_dataset, labels_of, read_image
from deformrs.pieces import Piece, check_method
from deformrs.plan import SamplingPlan, fresh_seed
from deformrs.randomness import Stage
from deformrs.rule import GIVEN_UP
from deformrs.runs import CertifiedRun, Result
from deformrs.runs.folder import GENERATOR, TORCH, difference
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import Method, clopper_pearson_lower, clopper_pearson_upper
from deformrs.stopping import Stopping

FALSE_ALARM = 1e-6
"""The probability that fresh samples contradict a run although nothing has changed."""

_NOISE = ("device", GENERATOR)
"""Settings by which the same seed gives other noise."""

_ROUNDING = ("version", "torch", "compiled", "batch_size")
"""Settings by which logits may be rounded differently, and samples near a tie change class."""

_AFFORDABLE = 2**28
"""The most pixels, of all samples together, that are classified again by default."""


@dataclass(frozen=True)
class Resampling:
    """The images that were sampled again, and gave the same counts."""

    images: int
    samples: int
    """Of all these images together."""
    estimated: bool
    """Whether all counts were compared, not only those that selected the class."""
    differences: str = ""
    """The settings by which counts cannot be equal, so that fresh samples were compared."""


def verify_counts(
    classifier: SmoothedClassifier,
    images: LabelledImages,
    run: CertifiedRun,
    *,
    some: int = 4,
    full: bool = False,
    progress: ProgressChoice = None,
) -> Resampling:
    """Return which images of a run were sampled again with the same counts; raise if they differ.

    `classifier` and `images` are those of the run, which `read_run` returns. `some` of its images
    are chosen at random, by entropy of the operating system. The samples that selected their
    classes are drawn again with the seed of the run, and so are the others if they are few or with
    `full`: the counts must be equal. Where the device draws other noise, or where another version
    of torch may be why they differ, the images get fresh samples instead, whose counts must agree
    with the stored ones up to chance.

    Every certified image must have its pixels, its label and the bound that its selection chooses.

    Guarantee: if this returns, the model gave the counts of the chosen images again, or
    `differences` names what keeps them from being compared exactly.
    """
    check_integer("some", some, least=1)
    dataset, done = as_dataset(images), {result.index: result for result in run.results}
    if not done:
        raise InputError(
            "the run", "without a result", "must hold at least one", "repeat deformrs certify"
        )
    if max(done) >= len(dataset):
        raise InputError(
            "the data",
            f"of {len(dataset)} images",
            f"must have image {max(done)}, which the run certified",
            "restore the dataset",
        )
    check_methods(run)
    differences = _compare_settings(classifier, dataset, run)
    for index in done:
        _piece(classifier, dataset, [index]).check_unchanged(done)
    plan = plan_of(run.config)
    chosen: list[int] = np.random.default_rng().permutation(sorted(done))[:some].tolist()
    pieces = _pieces(classifier, dataset, run, chosen)
    with CertificationBar(progress, len(chosen), None) as bar:
        if not differences.keys() & set(_NOISE):
            try:
                return _repeat(classifier, pieces, run, plan, full, bar.progress)
            except ModelError:
                if not differences:
                    raise
        stored = [done[index] for index in chosen]
        samples = _contradict(classifier, pieces, stored, plan, bar.progress)
    words = difference(
        {name: there for name, (there, _) in differences.items()},
        {name: here for name, (_, here) in differences.items()},
    )
    return Resampling(len(chosen), samples, plan.stopping is None, words)


def check_methods(run: CertifiedRun) -> None:
    """Raise unless the bound of every result is the one that its selection sample chooses.

    A bound that was chosen after the counts were seen errs more often than alpha.
    """
    method = Method.parse(run.config["method"])
    for result in run.results:
        check_method(result, method)


def plan_of(config: Config) -> SamplingPlan:
    """Return the sampling plan of a run."""
    own: Any = config
    stopping = own.get("stopping") and Stopping.from_config(own["stopping"])
    return SamplingPlan(own["n"], own["n0"], own["alpha"], own["seed"], own["method"], stopping)


def _compare_settings(
    classifier: SmoothedClassifier, dataset: Dataset, run: CertifiedRun
) -> dict[str, tuple[Any, Any]]:
    """Return how its execution differs, there and here; raise if the classifier is another."""
    first = run.results[0]
    image, _ = read_image(dataset, first.index, len(first.certificate.counts.selection))
    classifier.classes_for(image)
    config = classifier_config(classifier, image) | {"noise": classifier.noise.to_config()}
    ours: dict[str, Any] = json.loads(json.dumps(config))
    theirs: dict[str, Any] = dict(run.config)
    # A run knows more of a loaded model: its files, its normalisation and so on.
    theirs["model"] = {key: theirs["model"].get(key) for key in ours["model"]}
    for settings in (ours, theirs):
        settings.setdefault(GENERATOR, TORCH)
        settings.setdefault("compiled", "no")
    execution = (*_NOISE, *_ROUNDING)
    there = {key: theirs.get(key) for key in ours if key not in execution}
    here = {key: ours[key] for key in ours if key not in execution}
    if there != here:
        raise InputError(
            "the classifier",
            f"not that of the run ({difference(there, here)})",
            "must have its model, deformation, noise and padding",
            "restore them",
        )
    changed = {key: (theirs.get(key), ours[key]) for key in execution}
    stopping = theirs.get("stopping") or {"given_up": GIVEN_UP}
    changed["given_up"] = (stopping.get("given_up"), GIVEN_UP)
    return {key: pair for key, pair in changed.items() if pair[0] != pair[1]}


def _pieces(
    classifier: SmoothedClassifier, dataset: Dataset, run: CertifiedRun, chosen: Sequence[int]
) -> list[Piece]:
    """Return the pieces of images that were sampled together with the chosen ones."""
    order = [result.index for result in run.results]
    _check_order(order, dataset, run)
    together: Any = run.config.get("together", 1)
    starts = sorted({order.index(index) // together * together for index in chosen})
    return [_piece(classifier, dataset, order[start : start + together]) for start in starts]


def _check_order(order: Sequence[int], dataset: Dataset, run: CertifiedRun) -> None:
    """Raise unless these are the first images that the run selects; lines would be missing."""
    skip: Any = run.config.get("skip", 1)
    # Some images that come class by class are spread over the classes, and all are in order. A run
    # that was extended may have gone on from one selection to the other.
    selections = [
        deque(select_indices(len(dataset), skip, most, labels_of(dataset)))
        for most in (None, len(dataset))
    ]
    seen: set[int] = set()
    for found in order:
        for left in selections:
            while left and left[0] in seen:
                left.popleft()
        due = sorted({left[0] for left in selections if left})
        if found not in due:
            words = " or ".join(f"image {index}" for index in due) or "none"
            raise InputError(
                "the run",
                f"one with image {found} where {words} is due",
                "must hold the first images that it selects, in order: lines were removed or moved",
                "restore them, or certify again",
            )
        seen.add(found)


def _piece(classifier: SmoothedClassifier, dataset: Dataset, indices: Sequence[int]) -> Piece:
    classes = classifier.num_classes
    assert classes is not None  # read from the model by now
    return Piece.read(dataset, indices, classes)


def _repeat(
    classifier: SmoothedClassifier,
    pieces: Sequence[Piece],
    run: CertifiedRun,
    plan: SamplingPlan,
    full: bool,
    progress: Progress,
) -> Resampling:
    """Raise unless the model gives the stored counts for the same noise."""
    done = {result.index: result for result in run.results}
    results = [done[index] for piece in pieces for index in piece.indices]
    counts = [result.certificate.counts for result in results]
    every, selecting = sum(c.n0 + c.n for c in counts), plan.n0 * len(results)
    estimated = full or every * _pixels(pieces) <= _AFFORDABLE
    together: Any = run.config.get("together", 1)
    for piece in pieces:
        piece.check_same_model(
            classifier, plan, together, done, estimated=estimated, progress=progress
        )
    return Resampling(len(results), every if estimated else selecting, estimated)


def _contradict(
    classifier: SmoothedClassifier,
    pieces: Sequence[Piece],
    chosen: Sequence[Result],
    plan: SamplingPlan,
    progress: Progress,
) -> int:
    """Raise if fresh samples contradict the stored counts; return how many were drawn."""
    n = max(plan.n0, min(plan.n0 + plan.n, _AFFORDABLE // (_pixels(pieces) * len(chosen))))
    images = {
        index: image
        for piece in pieces
        for index, image in zip(piece.indices, piece.images, strict=True)
    }
    for result in chosen:
        now = classifier.count(
            images[result.index],
            n,
            Stage.PREDICT,
            seed=fresh_seed(),
            index=result.index,
            progress=progress,
        )
        counts = result.certificate.counts
        before = counts.selection
        if plan.stopping is None:  # else the number of samples depends on what they were
            before = tuple(map(sum, zip(before, counts.estimation, strict=True)))
        changed = contradiction(before, now, FALSE_ALARM / len(chosen))
        if changed is not None:
            raise ModelError(
                f"the prediction for image {result.index} ({result.source})",
                f"class {changed} for {now[changed]:,} of {n:,} fresh samples, and for "
                f"{before[changed]:,} of {sum(before):,} stored ones",
                "must be as probable as it was",
                "restore the model and the deformation, or certify again",
            )
    return n * len(chosen)


def _pixels(pieces: Sequence[Piece]) -> int:
    return max(image.numel() for piece in pieces for image in piece.images)


def contradiction(before: Sequence[int], now: Sequence[int], alpha: float) -> int | None:
    """Return a class whose counts cannot be of one probability; None if there is none.

    Guarantee: if the probabilities of all classes are the same before and now, a class is returned
    with probability at most alpha.

    >>> contradiction((90, 10), (800, 200), 1e-6), contradiction((90, 10), (200, 800), 1e-6)
    (None, 0)
    """
    # Two of its intervals are disjoint only if one of their four ends is on the wrong side.
    level = alpha / (4 * len(now))
    for class_, hits in enumerate(zip(before, now, strict=True)):
        counts = list(zip(hits, (sum(before), sum(now)), strict=True))
        lower = max(clopper_pearson_lower(k, n, level) for k, n in counts)
        upper = min(clopper_pearson_upper(k, n, level) for k, n in counts)
        if lower > upper:
            return class_
    return None
