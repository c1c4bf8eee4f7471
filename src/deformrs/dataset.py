"""Certify every image of a dataset, into a run folder that can be resumed."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from torch import Tensor

from deformrs.bars import CertificationBar, Progress, ProgressChoice
from deformrs.checks import check_integer
from deformrs.config import Config, ConfigValue
from deformrs.determinism import Difference
from deformrs.engines import Engine, InProcess, Session, Work
from deformrs.errors import DeformRSError, InputError, ModelError, ScarcityWarning, damaged
from deformrs.fingerprints import Fingerprint, network_config, with_model
from deformrs.geometry import size_of
from deformrs.inputs import (
    Dataset,
    LabelledImages,
    as_dataset,
    as_image,
    as_label,
    check_dataset,
    image_name,
    item_of,
    labels_of,
    read_image,
)
from deformrs.pieces import Piece
from deformrs.plan import SamplingPlan, seed_or_fresh
from deformrs.rule import GIVEN_UP
from deformrs.runs import Result, Run
from deformrs.runs.folder import CERTIFICATES, CONFIG, begun_config, difference, run_settings
from deformrs.runs.request import Simultaneous
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import Method
from deformrs.stopping import Stopping
from deformrs.units import Unit

MOST_TOGETHER = 2**12
"""Images that share batches. A forged run folder must not fill the memory."""

_PIECES_EACH = 2
"""The pieces that each of several workers should get at least."""


def certify_dataset(
    classifier: SmoothedClassifier,
    images: LabelledImages,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int | None = None,
    method: str | None = None,
    stopping: Stopping | None = None,
    skip: int = 1,
    max: int | None = None,
    simultaneous: bool = False,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    engine: Engine | None = None,
    progress: ProgressChoice = None,
) -> Iterator[Result]:
    """Certify every `skip`-th of the first `max` images; yield the results in order.

    `images` is an `ImageSet`, a list of pairs (image, label), a dataset of torch or Hugging Face, a
    pair of arrays (images, labels), or a `DataLoader` that does not shuffle. Images are those that
    `SmoothedClassifier` takes.

    `n`, `n0`, `alpha`, `seed`, `method` and `stopping` are those of `SmoothedClassifier.certify`.
    All images and labels are checked before the first is sampled; with `same_size` they must agree
    in size. `together` is the number of images that share batches; by default as many as keep the
    device busy. `engine` says where the images are sampled: by default in this process, with a
    `RayEngine` by the workers of a Ray cluster. The results are the same.

    With `simultaneous`, the selected images share alpha equally. A run is then bound to their
    number, and is not extended.

    `progress` None shows a bar in a terminal or a notebook, False does not; a `Progress` has
    callbacks.

    With `out`, each result is on disk before it is yielded, and an interrupted run is resumed, with
    the seed and the method it began with: finished results are read from the folder. `about` is
    added to the recorded configuration of model, noise and sampling.

    Guarantee: each certificate is false with probability at most alpha, and depends on the model,
    the image, its index and the seed only: not on the other images or on interruptions. With
    `simultaneous`, any of them is false with probability at most alpha.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_half(images):
    ...     left, right = images[..., :4], images[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5))
    >>> [result.correct for result in certify_dataset(g, [(image, 1), (image, 0)], n=100)]
    [True, False]
    """
    plan = SamplingPlan(n, n0, alpha, run_seed(out, seed), run_method(out, method, n), stopping)
    return begin(
        classifier,
        images,
        plan,
        skip=skip,
        max=max,
        simultaneous=simultaneous,
        out=out,
        about=about,
        same_size=same_size,
        together=together,
        engine=engine,
        progress=progress,
    )[1]


def run_seed(out: Path | str | None, seed: int | None) -> int:
    """Return the seed of a run: the one given, that of the run in `out`, or a fresh one.

    Guarantee: the seed of a run without samples is fresh unless it is given.
    """
    config = None if out is None else begun_config(Path(out))
    if seed is None and config is not None:
        stored = config.get("seed")
        seed = stored if isinstance(stored, int) else None
    return seed_or_fresh(seed)


def run_method(out: Path | str | None, method: str | None, n: int) -> str:
    """Return the method of a run: the one given, that of the run in `out`, or "auto".

    A run with another n is refused for that, not for a method that does not suit this n.
    """
    if method is not None:
        return method
    config = (None if out is None else begun_config(Path(out))) or {}
    stored = Method.parse(config.get("method", "auto"))
    if stored.split in ("auto", "runner_up") and config.get("n") != n:
        stored = replace(stored, sampling="fixed", most=None)  # chosen for this n
    return stored.at_most(n).name


def begin(
    classifier: SmoothedClassifier,
    images: LabelledImages,
    plan: SamplingPlan,
    *,
    skip: int = 1,
    max: int | None = None,
    simultaneous: bool = False,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    engine: Engine | None = None,
    progress: ProgressChoice = None,
) -> tuple[Config, Iterator[Result]]:
    """Check the arguments of `certify_dataset`; return the run's configuration and its results."""
    images = as_dataset(images)
    indices = select_indices(len(images), skip, max, labels_of(images))
    shared = Simultaneous(len(indices), plan.alpha).to_config() if simultaneous else {}
    if simultaneous:
        plan = plan.shared(len(indices))
    name = image_name(images, indices[0])
    image, label = item_of(images, indices[0])
    first = as_image(name, image)
    as_label(name, label, classifier.classes_for(first))
    if plan.stopping is not None:
        plan.stopping.check(classifier.deformation.space(size_of(first)))
    folder = None if out is None else Path(out)
    is_new = folder is None or not (folder / CERTIFICATES).exists()
    if is_new:  # a finished run is only read
        _check_plan(classifier, plan, images, indices, first)
    if together is None:  # resumed, the same batches as before
        together = _stored_together(folder)
    else:
        check_integer("together", together, least=1)
        if together > MOST_TOGETHER:
            most = f"must be at most {MOST_TOGETHER:,} images"
            raise InputError("together", f"{together:,}", most, "leave it out")
    classes = classifier.classes_for(first)
    fingerprint = Fingerprint.of(classifier, first)
    work = Work(images, indices[0], first, plan, classes, together, is_new, fingerprint)
    session = (engine or InProcess()).start(work, classifier)
    try:
        together = session.setup.together
        if engine is not None:
            model = (about or {}).get("model") or network_config(classifier.model)
            _check_same_weights(session.setup.config["model"], model)
        config = dict(session.setup.config)
        config |= {"n": plan.n, "n0": plan.n0, "seed": plan.seed, "skip": int(skip)}
        config |= {"together": int(together)} if together > 1 else {}
        space = classifier.deformation.space(size_of(first))
        method = plan.method_for(classifier.noise, space).name
        if plan.stopping is not None:
            # The level of giving up changes which samples are drawn.
            config |= {"stopping": plan.stopping.to_config() | {"given_up": GIVEN_UP}}
        config = with_model(config, about or {}) | shared
        if folder is not None:
            Run.check(folder, classifier.noise, plan.alpha, method, config)
    except BaseException:
        session.close()
        raise
    certification = _Certification(
        classifier, images, indices, first, plan, method, config, folder, same_size, session
    )
    settings = run_settings(classifier.noise, plan.alpha, method)
    results = certification.results(progress)
    next(results)  # from now on it closes the session, also if it is never asked for a result
    return config | settings, results  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class _Certification:
    """A certification whose arguments are checked, and whose engine is ready."""

    classifier: SmoothedClassifier
    images: Dataset
    indices: Sequence[int]
    first: Tensor
    plan: SamplingPlan
    method: str
    config: Config
    folder: Path | None
    same_size: bool
    session: Session

    def results(self, progress: ProgressChoice) -> Iterator[Result | None]:
        """Yield None at once, then the results in order, each after it was stored."""
        with closing(self.session):
            yield None
            yield from self._results(progress)

    def _results(self, progress: ProgressChoice) -> Iterator[Result]:
        plan = self.plan
        samples = None if plan.stopping else plan.n0 + plan.n
        with (
            self._opened() as run,
            CertificationBar(progress, len(self.indices), samples) as bar,
        ):
            store = _Store(run)
            missing = [index for index in self.indices if index not in store]
            if missing:
                _check_plan(self.classifier, plan, self.images, self.indices, self.first)
            self._check_images(missing, bar.progress)
            if missing and store.earliest is not None:
                self._check_same_model(store)
            self._note_few_pieces(len(missing))
            outcomes = self.session.sample(
                (piece for piece in self._pieces if not store.indices.issuperset(piece)),
                bar.progress,
                run.tally if run else lambda _: nullcontext(),
            )
            failed: dict[tuple[int, ...], DeformRSError] = {}
            for piece in self._pieces:
                if earlier := store.earlier(piece):
                    self._read(piece).check_unchanged(earlier)
                while piece not in failed and not all(index in store for index in piece):
                    outcome = next(outcomes)
                    self._check_repeated(run, outcome.difference)
                    if outcome.error is not None:
                        failed[outcome.indices] = outcome.error
                        continue
                    made = [c.certified(self.classifier, plan) for c in outcome.counts]
                    store.add(made, outcome.seconds, due=outcome.indices == piece)
                if piece in failed:
                    store.has_gap = True
                    continue
                for result in store.take(piece, earlier):
                    bar.finish()
                    yield result
            self._check_repeated(run, self.session.changed())
        if failed:
            raise self._failure(failed)

    def _opened(self) -> AbstractContextManager[Run | None]:
        if self.folder is None:
            return nullcontext()
        noise, alpha = self.classifier.noise, self.plan.alpha
        return Run.open(self.folder, noise, alpha, self.method, self.config, self.indices)

    @property
    def _pieces(self) -> Iterator[tuple[int, ...]]:
        """The indices of the images of each piece."""
        size = self.session.setup.together
        for start in range(0, len(self.indices), size):
            yield tuple(self.indices[start : start + size])

    def _note_few_pieces(self, missing: int) -> None:
        """Say so if there are too few pieces to keep all workers busy."""
        workers, together = self.session.workers, self.session.setup.together
        pieces = -(-missing // together)
        if workers > 1 and together > 1 and 0 < pieces < _PIECES_EACH * workers:
            smaller = max(1, missing // (_PIECES_EACH * workers))
            warnings.warn(
                f"{pieces} pieces of {together} images for {workers} workers: some will have "
                f"nothing to do; {smaller} images in a piece (--together, where a run begins) "
                "would keep them busy",
                ScarcityWarning,
                stacklevel=2,
            )

    def _read(self, piece: Sequence[int]) -> Piece:
        return Piece.read(self.images, piece, self.classifier.classes_for(self.first))

    def _check_images(self, missing: Sequence[int], progress: Progress) -> None:
        """Raise one error that names every faulty image or label."""
        one_size = self.same_size or "compiled" in self.session.setup.config
        size = size_of(self.first) if one_size else None
        classes = self.classifier.classes_for(self.first)
        check_dataset(self.images, missing, classes, size=size, progress=progress)

    def _check_same_model(self, store: _Store) -> None:
        """Raise unless the model gives the selection counts of a piece that is stored."""
        stored = store.earliest  # it may lie beyond the images selected now
        assert stored is not None
        if stored >= len(self.images):
            raise InputError(
                "the data",
                f"of {len(self.images)} images, but the run in {self.folder} has image {stored}",
                "must be the dataset that the run began with",
                "restore it, or begin another run",
            )
        known = (piece for piece in self._pieces if not store.indices.isdisjoint(piece))
        piece = next(known, (stored,))
        self.session.check_same_model(piece, store.earlier(piece))

    def _check_repeated(self, run: Run | None, difference: Difference | None) -> None:
        """Raise, and mark the run as unsound, if the model did not repeat its predictions."""
        if difference is None:
            return
        name = image_name(self.images, difference.index)
        error = ModelError(
            f"the prediction for {name}",
            f"not repeated ({difference.changed} of {difference.total} of the same samples "
            "now have another class)",
            "must be a fixed function of the image: no result of this run can be trusted",
            "find what the model remembers or draws at random, and begin another run",
        )
        if run is not None:
            run.mark_unsound(str(error))
        raise error

    def _failure(self, failed: Mapping[tuple[int, ...], DeformRSError]) -> ModelError:
        """Return the error that names the images of pieces that failed."""
        indices = sorted(index for piece in failed for index in piece)
        shown = ", ".join(image_name(self.images, index) for index in indices[:5])
        more = f" and {len(indices) - 5:,} more" if len(indices) > 5 else ""
        reasons = [*dict.fromkeys(str(failed[piece]) for piece in sorted(failed))]
        kept = "" if self.folder is None else "; the results of the others are kept"
        return ModelError(
            f"the certification of {shown}{more}",
            f"not finished ({' | '.join(reasons[:3])})",
            "must succeed for every image",
            f"remove the cause, and repeat the command{kept}",
        )


class _Store:
    """The results of a run: those of earlier processes, and those that arrive.

    In a folder, a result whose turn has not come waits on the disk; without one, in memory.
    """

    def __init__(self, run: Run | None) -> None:
        self._run = run
        self._arrived: dict[int, Result] = {}
        self._seconds: dict[int, float] = {}
        self._taken: set[int] = set()
        self.indices = frozenset(run.done).union(run.backlog) if run else frozenset()
        """The images of earlier processes."""
        self.has_gap = False
        """Whether a piece was left out: later lines would not be in order, and wait."""

    def __contains__(self, index: int) -> bool:
        run = self._run
        there = index in self._arrived or index in self._taken
        return there or (run is not None and (index in run.done or index in run.backlog))

    @property
    def earliest(self) -> int | None:
        """The first image of earlier processes."""
        return min(self.indices, default=None)

    def earlier(self, piece: Sequence[int]) -> dict[int, Result]:
        """Return the results of a piece that earlier processes made."""
        own = [index for index in piece if index in self.indices]
        if self._run is None or not own:
            return {}
        return {result.index: result for result in self._run.read(own)}

    def add(self, results: Sequence[Result], seconds: float, *, due: bool) -> None:
        """Add the results of a piece, unless they are there; `due` says that it is its turn."""
        new = [result for result in results if result.index not in self]
        self._seconds.update((result.index, seconds / len(results)) for result in new)
        if self._run and (self.has_gap or not due):
            self._run.set_aside(new)
        else:
            self._arrived.update((result.index, result) for result in new)

    def take(self, piece: Sequence[int], earlier: Mapping[int, Result]) -> Iterator[Result]:
        """Store the results of a piece whose turn it is, and yield them in order."""
        waiting = self._run.backlog.read(piece) if self._run else []
        new = {result.index: result for result in waiting}
        new |= {index: self._arrived.pop(index) for index in piece if index in self._arrived}
        order = [index for index in piece if index in new]
        seconds = [self._seconds.pop(index, None) for index in order]
        if self._run and not self.has_gap:
            self._run.add_all([new[index] for index in order], seconds)
        self._taken.update(piece)  # an outcome that comes again is dropped
        for index in piece:
            yield new[index] if index in new else earlier[index]


def select_indices(
    total: int, skip: int = 1, max: int | None = None, labels: Sequence[int] | None = None
) -> Sequence[int]:
    """Return the indices of the images to certify, in that order.

    They are every `skip`-th of the first `max` images. If `labels` come class by class, as those
    of class folders, the first images would be of one class: `max` then takes the first of each
    class, then the second of each, and so on. A larger `max` adds images at the end.

    >>> list(select_indices(6, max=4, labels=[0, 0, 0, 1, 1, 1]))
    [0, 3, 1, 4]
    """
    check_integer("skip", skip, least=1)
    if max is not None:
        check_integer("max", max, least=1)
    if total < 1:
        raise InputError("the data", "empty", "must have at least one image", "add some")
    indices: Sequence[int] = range(0, total, skip)
    if max is None:
        return indices
    if labels is not None and len(list(groupby(labels))) == len(set(labels)):
        earlier: Counter[int] = Counter()
        places = {}
        for index in indices:
            places[index] = earlier[labels[index]]
            earlier[labels[index]] += 1
        indices = sorted(indices, key=places.__getitem__)
    return indices[: math.ceil(max / skip)]


def _check_plan(
    classifier: SmoothedClassifier,
    plan: SamplingPlan,
    images: Dataset,
    indices: Sequence[int],
    first: Tensor,
) -> None:
    """Raise if no image, whatever its size, could be certified as the plan requests."""
    try:
        classifier.check_plan(plan, first)
    except InputError:
        space = classifier.deformation.space(size_of(first))
        if all(block.unit in (Unit.ANGLE, Unit.FRACTION) for block in space.blocks):
            raise  # the size makes no difference
        sizes = {size_of(first)}
        for index in indices:
            with suppress(InputError):  # faulty images are reported by name later
                image, _ = read_image(images, index, classifier.classes_for(first))
                if size_of(image) not in sizes:
                    sizes.add(size_of(image))
                    classifier.check_plan(plan, image)
                    return
        raise


def _check_same_weights(there: ConfigValue, here: ConfigValue) -> None:
    """Raise unless workers that loaded the model themselves have the one that was loaded here."""
    assert isinstance(there, dict)
    assert isinstance(here, dict)
    common = (there.keys() & here.keys()) - {"precision"}  # which is chosen for the device
    theirs, ours = ({key: model[key] for key in sorted(common)} for model in (there, here))
    if theirs != ours:
        raise InputError(
            "the model of the workers",
            f"not the one found here ({difference(theirs, ours)})",
            "must be the same everywhere",
            "put its files on a file system that all machines share",
        )


def _stored_together(folder: Path | None) -> int | None:
    """Return how many images share batches in the run that has begun in a folder, if one has."""
    config = None if folder is None else begun_config(folder)
    if folder is None or config is None:
        return None
    stored = config.get("together", 1)
    if not isinstance(stored, int) or not 0 < stored <= MOST_TOGETHER:
        raise damaged(
            folder / CONFIG,
            f"its images share batches by {stored!r}, which must be 1 to {MOST_TOGETHER:,}",
        )
    return stored
