"""Samples from inside certified sets, each with what the smoothed classifier says there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deformrs.errors import InputError
from deformrs.report.gallery.certified import Exhibit
from deformrs.report.gallery.deformed import shift_label
from deformrs.report.gallery.lettering import class_label, shorten
from deformrs.report.gallery.sheet import HEADING, Band, Tile, draw_sheet
from deformrs.report.gallery.shown import Image

NAME_IN = 2.4
"""Inches that the name of a class may take in a heading."""


@dataclass(frozen=True)
class Sample:
    """One deformation of an image. shift: [d], image: [c, h, w].

    `prediction` is the smoothed classifier's there, None where it abstains; `reach_px` is how far
    the farthest pixel is read from its place.
    """

    shift: NDArray[np.float64]
    image: Tensor
    prediction: int | None
    reach_px: float


class Verdict(Enum):
    """What a prediction inside a certified set means: how it is marked, and in which colour."""

    SAME = "✓", "#1a7f37"
    ABSTAINS = "–", "#6e7781"
    DIFFERS = "✗", "#cf222e"

    @property
    def mark(self) -> str:
        return self.value[0]

    @property
    def colour(self) -> str:
        return self.value[1]


@dataclass(frozen=True)
class CertifiedSamples:
    """An image, its certificate, and samples from all over the certified set.

    `samples` is empty where the certificate abstains. `n` and `alpha` are those of every
    prediction; `title` says what is shown, such as the name of a file.
    """

    exhibit: Exhibit
    original: Sample
    samples: tuple[Sample, ...]
    n: int
    alpha: float
    title: str = ""

    def verdict(self, sample: Sample) -> Verdict:
        """Does the prediction agree with the certificate?

        One that differs contradicts it: that may happen with probability alpha, and never
        goes unseen.
        """
        if sample.prediction is None:
            return Verdict.ABSTAINS
        same = sample.prediction == self.exhibit.certificate.prediction
        return Verdict.SAME if same else Verdict.DIFFERS


def draw_samples(
    rows: Sequence[CertifiedSamples], path: Path, *, names: Sequence[str] | None = None
) -> None:
    """A row each: the image as it is, then samples with predictions beneath.

    `names` are those of the classes, in their order. An image whose certificate abstains has
    its row, with a note; if all abstain there is nothing to show, and that is an error.
    """
    if rows and not any(row.samples for row in rows):
        raise InputError(
            "the gallery",
            f"of {len(rows)} picture(s) whose certificates all abstain",
            "must have a certified one",
            "take more samples, less noise or another image",
        )
    draw_rows(rows, path, names=names)


def draw_rows(
    rows: Sequence[CertifiedSamples], path: Path, *, names: Sequence[str] | None = None
) -> None:
    """The same, also where every certificate abstains."""
    bands = [_band(row, names) for row in rows]
    draw_sheet(bands, path, caption=_caption(rows))


def _band(row: CertifiedSamples, names: Sequence[str] | None) -> Band:
    certificate = row.exhibit.certificate
    noise = certificate.law.describe(certificate.space)
    tiles = [_tile(row, row.original, "original", names)]
    for sample in row.samples:
        tiles.append(
            _tile(row, sample, shift_label(sample.shift, sample.reach_px, certificate.space), names)
        )
    if certificate.prediction is None:
        return Band(row.title, tuple(tiles), noise, note=certificate.claim)
    name = shorten(class_label(certificate.prediction, names), NAME_IN, HEADING)
    claim = name + certificate.claim.removeprefix(f"class {certificate.prediction}")
    return Band(row.title, tuple(tiles), f"{claim}; {noise}")


def _tile(row: CertifiedSamples, sample: Sample, below: str, names: Sequence[str] | None) -> Tile:
    prediction = sample.prediction
    said = "abstains" if prediction is None else class_label(prediction, names)
    if row.exhibit.certificate.prediction is None:  # nothing to agree with
        return Tile(Image(sample.image), (said, below))
    verdict = row.verdict(sample)
    return Tile(Image(sample.image), (f"{verdict.mark} {said}", below), verdict.colour)


def _caption(rows: Sequence[CertifiedSamples]) -> str:
    verdicts = [row.verdict(sample) for row in rows for sample in row.samples]
    if not verdicts:
        return ""
    same, none, other = (verdicts.count(verdict) for verdict in Verdict)
    each = " or ".join(dict.fromkeys(f"n = {row.n:,}, alpha = {row.alpha:g}" for row in rows))
    words = (
        "Deformations from inside the certified set. Beneath each, what the smoothed classifier "
        f"says there ({each} each): {Verdict.SAME.mark} as certified, {Verdict.ABSTAINS.mark} "
        f"abstains, {Verdict.DIFFERS.mark} differs; then the shift, or how far the farthest pixel "
        f"is read from its place. Of {len(verdicts)} samples {same} are as certified, {none} "
        f"abstain, {other} differ."
    )
    if other:
        words += (
            " Where one differs, either the prediction or the certificate is false, each of which "
            "happens with probability at most its alpha."
        )
    return words
