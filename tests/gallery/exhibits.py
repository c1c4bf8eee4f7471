"""Images, classifiers and readers of drawn files that the gallery tests share."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, one_hot

from deformrs import Certificate, Counts, Deformation, NoiseLaw, SmoothedClassifier
from deformrs.geometry import size_of
from deformrs.report.gallery import Exhibit, ExhibitSamples, sample_exhibit


def photograph(channels: int = 3, height: int = 24, width: int = 32, seed: int = 0) -> Tensor:
    """Smooth colours: [channels, height, width]."""
    coarse = torch.rand(1, channels, 5, 5, generator=torch.Generator().manual_seed(seed))
    return interpolate(coarse, (height, width), mode="bilinear")[0]


def spot(height: int = 24, width: int = 32) -> Tensor:
    """A bright patch in the right half."""
    image = torch.zeros(1, height, width)
    image[:, height // 3 : -(height // 3), width // 2 + 3 : -4] = 1
    return image


def brighter_side(images: Tensor) -> Tensor:
    """Class 1 where the right half is the brighter one."""
    half = images.shape[-1] // 2
    left, right = images[..., :half], images[..., -half:]
    return torch.stack([left.sum((1, 2, 3)), right.sum((1, 2, 3))], dim=1)


def coin(images: Tensor) -> Tensor:
    """Answers by the last digits of the image: every certificate abstains."""
    return one_hot((images.sum((1, 2, 3)) * 1e4).long() % 2, 2).float()


def smooth(deformation: Deformation, noise: NoiseLaw) -> SmoothedClassifier:
    return SmoothedClassifier(brighter_side, deformation, noise, num_classes=2)


def smooth_coin(deformation: Deformation, noise: NoiseLaw) -> SmoothedClassifier:
    return SmoothedClassifier(coin, deformation, noise, num_classes=2)


def claimed(deformation: Deformation, law: NoiseLaw, hits: tuple[int, int]) -> Certificate:
    """The certificate of the image with the spot, had these been its counts."""
    counts = Counts(hits, hits)
    return law.certify(counts, deformation.space(size_of(spot())), 0.001)


def sampled(
    classifier: SmoothedClassifier, image: Tensor, *, title: str = "", index: int = 0, seed: int = 0
) -> ExhibitSamples:
    """The image certified, and four samples from its certified set."""
    certificate = classifier.certify(image, 200, 20, seed=seed, index=index)
    exhibit = Exhibit(image, certificate, title, index)
    return sample_exhibit(classifier, exhibit, 4, n=40, seed=seed)


def drawn(path: Path) -> NDArray[np.uint8]:
    """The pixels of a PNG: [h, w, 3]."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def colours(path: Path) -> int:
    """How many different colours a PNG has."""
    with Image.open(path) as image:
        return len(image.convert("RGB").getcolors(2**24) or [])


def words(path: Path) -> list[str]:
    """Every line of an SVG's text, which stands in comments beside its outlines."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(), flags=re.DOTALL)
