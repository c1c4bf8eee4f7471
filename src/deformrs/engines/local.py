"""Certify labelled pictures one after another, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.config import Config
from deformrs.engines.groups import Asked, Group, groups_of, together_for
from deformrs.engines.identity import identity_of
from deformrs.engines.looking import Labelled, check_dataset, chosen, picture_of, source_of
from deformrs.geometry import size_of
from deformrs.protocol import method_for
from deformrs.runs import Result, Run
from deformrs.sampling import Watch
from deformrs.smoothing import SmoothedClassifier
from deformrs.statistics import is_anytime
from deformrs.stopping import GIVEN_UP, Stopping


def certify_dataset(
    classifier: SmoothedClassifier,
    pictures: Labelled,
    *,
    n: int = 100_000,
    n0: int = 100,
    alpha: float = 1e-3,
    seed: int = 0,
    method: str | None = None,
    stopping: Stopping | None = None,
    skip: int = 1,
    max: int | None = None,
    out: Path | str | None = None,
    about: Config | None = None,
    same_size: bool = False,
    together: int | None = None,
    looked: Callable[[int], None] | None = None,
    watch: Watch | None = None,
    settled: Watch | None = None,
) -> Iterator[Result]:
    """Certify every `skip`-th of the first `max` pictures; results come one by one, in order.

    All pictures and labels are looked at before the first is sampled (`looked` is told how many
    were); with `same_size` they must agree in size. `together` is how many pictures share their
    batches; None: as many as keep a GPU busy, and one on a CPU. `watch` is told of every batch.

    With `stopping` a picture gets no more samples than settle what it asks, at most n; `settled`
    is told how many more pictures are. `method` is then the any-time bound.

    With `out`, each result is on the disk before it is handed over, and a run that was stopped is
    taken up: what is done comes from the folder. `about` says what else reproduces the run; model,
    noise and sampling are written down in any case.

    Guarantee: each certificate is false with probability at most alpha, and depends on the model,
    the picture, its index and the seed: not on the other pictures or on where a run was stopped.

    >>> import torch
    >>> from deformrs import Rotation, SmoothedClassifier, Uniform
    >>> def brighter_half(pictures):
    ...     left, right = pictures[..., :4], pictures[..., 4:]
    ...     return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)
    >>> image = torch.zeros(1, 8, 8)
    >>> image[:, 3:5, 5:7] = 1
    >>> g = SmoothedClassifier(brighter_half, Rotation(), Uniform(0.5), num_classes=2)
    >>> [result.correct for result in certify_dataset(g, [(image, 1), (image, 0)], n=100)]
    [True, False]
    """
    check_whole("n", n, least=1)
    check_whole("n0", n0, least=1)
    check_alpha(alpha)
    check_seed("seed", seed)
    method = method_for(method, stopping, n)
    if is_anytime(method):
        check_alpha(alpha, below=0.5)
    indices = chosen(len(pictures), skip, max)
    first, _ = picture_of(pictures, indices[0], classifier.num_classes)
    if stopping is not None:
        stopping.check(classifier.deformation.space(size_of(first)))
    if together is None:
        together = together_for(classifier, first, n, stopping)
    check_whole("together", together, least=1)
    classifier.warm_up(first, together=together)  # compiled or not: only then is it known
    config: Config = identity_of(classifier, first)
    config |= {"n": n, "n0": n0, "seed": seed, "skip": skip}
    config |= {"together": together} if together > 1 else {}
    if stopping is not None:
        # How patient the rule is changes which samples are drawn, not what is asked.
        config |= {"stopping": stopping.to_config() | {"given_up": GIVEN_UP}}
    config = _merged(config, about or {})
    asked = Asked(n, n0, alpha, seed, method, stopping, watch, settled)

    def certified() -> Iterator[Result]:
        opened = (
            nullcontext()
            if out is None
            else Run.open(Path(out), classifier.noise, float(alpha), method, config)
        )
        with opened as run:
            done = {result.index: result for result in run.results} if run else {}
            missing = [index for index in indices if index not in done]
            same = same_size or classifier.sampler.compiled != "no"
            size = size_of(first) if same else None
            check_dataset(pictures, missing, classifier.num_classes, size=size, watch=looked)
            groups = list(groups_of(indices, together))
            if missing and done:
                known = next(group for group in groups if done.keys() & set(group))
                _read(pictures, known, together, classifier).check_same(classifier, done, asked)
            for places in groups:
                group = _read(pictures, places, together, classifier)
                group.check_unchanged(done)
                began = time.perf_counter()
                if not done.keys() >= set(places):
                    # All of it, also what is there: batches are then filled as they were.
                    results = group.certified(asked, classifier)
                    made = [result for result in results if result.index not in done]
                    if run:
                        seconds = (time.perf_counter() - began) / len(places)
                        run.add_all(made, seconds=seconds)
                    done |= {result.index: result for result in made}
                yield from (done.pop(index) for index in places)

    return certified()


def _read(
    pictures: Labelled, places: tuple[int, ...], together: int, classifier: SmoothedClassifier
) -> Group:
    read = [picture_of(pictures, index, classifier.num_classes) for index in places]
    return Group(
        places,
        tuple(image for image, _ in read),
        tuple(label for _, label in read),
        tuple(source_of(pictures, index) for index in places),
        together,
    )


def _merged(config: Config, about: Config) -> Config:
    """Both; what is known of the model from either side is kept."""
    ours, theirs = config.get("model"), about.get("model")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        about = about | {"model": theirs | ours}
    return config | about
