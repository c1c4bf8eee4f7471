"""What the smoothed classifier says all over a certified set, made ready to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deformrs.certificate import Certificate
from deformrs.checks import check_alpha, check_seed, check_whole
from deformrs.deformations import Deformation
from deformrs.errors import InputError
from deformrs.geometry import check_pictures, size_of
from deformrs.noise import NoiseLaw
from deformrs.report.gallery.certified import Exhibit, certified_shifts
from deformrs.report.gallery.deformed import deform, reach_px
from deformrs.report.gallery.families import default_families, family_title, suggested_noise
from deformrs.report.gallery.samples import CertifiedSamples, Sample
from deformrs.smoothing import SmoothedClassifier
from deformrs.space import Space
from deformrs.statistics import check_method

Report = Callable[[int, int], None]
"""Called with the number of samples done and the number of all."""

Smooth = Callable[[Deformation, NoiseLaw], SmoothedClassifier]
"""Smooths one model over any deformation and noise."""


@dataclass(frozen=True)
class Sampling:
    """How many deformations a row shows, and how many samples stand behind them.

    `n` and `n0` samples go into a certificate, `predict_n` into each prediction.
    """

    columns: int = 8
    n: int = 1000
    n0: int = 100
    alpha: float = 1e-3
    seed: int = 0
    predict_n: int = 200
    method: str = "clopper_pearson"

    def __post_init__(self) -> None:
        for name in ("columns", "n", "n0", "predict_n"):
            check_whole(name, getattr(self, name), least=1)
        check_alpha(self.alpha)
        check_seed("seed", self.seed)
        check_method(self.method)


@dataclass(frozen=True)
class Subject:
    """A picture to be shown: [c, h, w], its number in its data set, and a title.

    A `certificate` that is known already is not sampled again.
    """

    image: Tensor
    index: int = 0
    title: str = ""
    certificate: Certificate | None = None


def exhibit(
    classifier: SmoothedClassifier,
    subjects: Sequence[Subject],
    sampling: Sampling,
    report: Report | None = None,
) -> list[CertifiedSamples]:
    """Certify every picture and predict at deformations from all over its certified set."""
    check_whole("the number of pictures", len(subjects), least=1)
    for subject in subjects:  # before the first is sampled
        _check(subject, classifier)
    progress = _Progress(sum(_cost(subject, sampling) for subject in subjects), report)
    return [_exhibit(classifier, subject, sampling, progress) for subject in subjects]


def exhibit_families(
    smooth: Smooth,
    subject: Subject,
    sampling: Sampling,
    *,
    deformations: Sequence[Deformation] | None = None,
    noise: Callable[[Space], NoiseLaw] = suggested_noise,
    report: Report | None = None,
) -> list[CertifiedSamples]:
    """The same for one picture under one deformation after another.

    Without `deformations`, an example of every registered family. The rows are called after them.
    """
    check_pictures("the picture", subject.image, rank=3)
    if subject.certificate is not None:
        raise InputError("the certificate", "given", "cannot hold for every family", "leave it out")
    families = default_families() if deformations is None else deformations
    check_whole("the number of deformations", len(families), least=1)
    classifiers = [
        smooth(family, noise(family.space(size_of(subject.image)))) for family in families
    ]
    progress = _Progress(len(families) * _cost(subject, sampling), report)
    return [
        _exhibit(
            classifier,
            Subject(subject.image, subject.index, family_title(family)),
            sampling,
            progress,
        )
        for classifier, family in zip(classifiers, families, strict=True)
    ]


class _Progress:
    """Adds up samples and passes the sum on."""

    def __init__(self, total: int, report: Report | None) -> None:
        self.done, self.total, self.report = 0, total, report

    def add(self, samples: int) -> None:
        self.done += samples
        if self.report is not None:
            self.report(self.done, self.total)


def _cost(subject: Subject, sampling: Sampling) -> int:
    certifying = 0 if subject.certificate is not None else sampling.n0 + sampling.n
    return certifying + (1 + sampling.columns) * sampling.predict_n


def _exhibit(
    classifier: SmoothedClassifier, subject: Subject, sampling: Sampling, progress: _Progress
) -> CertifiedSamples:
    certificate = subject.certificate
    if certificate is None:
        certificate = classifier.certify(
            subject.image,
            sampling.n,
            sampling.n0,
            sampling.alpha,
            sampling.seed,
            index=subject.index,
            method=sampling.method,
            watch=progress.add,
        )
    shifts = np.zeros((1, certificate.space.dim))
    if certificate.prediction is None:
        progress.add(sampling.columns * sampling.predict_n)
    else:
        found = certified_shifts(certificate, sampling.columns, sampling.seed)
        shifts = np.concatenate([shifts, found])
    original, *samples = _predict(classifier, subject, shifts, sampling, progress)
    return CertifiedSamples(
        Exhibit(subject.image, certificate),
        original,
        tuple(samples),
        sampling.predict_n,
        sampling.alpha,
        subject.title,
    )


def _predict(
    classifier: SmoothedClassifier,
    subject: Subject,
    shifts: NDArray[np.float64],
    sampling: Sampling,
    progress: _Progress,
) -> list[Sample]:
    params = torch.from_numpy(shifts)
    deformed = deform(subject.image, classifier.deformation, params, classifier.padding)
    samples = []
    for shift, (picture, field) in zip(shifts, deformed, strict=True):
        prediction = classifier.predict(
            subject.image,
            sampling.predict_n,
            sampling.alpha,
            sampling.seed,
            index=subject.index,
            shift=shift.tolist(),
        )
        samples.append(Sample(shift, picture, prediction, reach_px(field)))
        progress.add(sampling.predict_n)
    return samples


def _check(subject: Subject, classifier: SmoothedClassifier) -> None:
    """Raise unless the picture's certificate, if it has one, can be this classifier's."""
    check_pictures("the picture", subject.image, rank=3)
    check_seed("index", subject.index)
    certificate = subject.certificate
    if certificate is None:
        return
    Exhibit(subject.image, certificate).check_deformation(classifier.deformation)
    classes = len(certificate.counts.estimation)
    pairs: list[tuple[str, object, object]] = [
        ("the noise of the classifier", classifier.noise, certificate.law),
        ("num_classes", classifier.num_classes, classes),
    ]
    for name, own, certified in pairs:
        if own != certified:
            raise InputError(name, own, f"must be the certificate's, {certified}", "match the two")
