"""What every set of labelled images promises."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_integer, check_seed, is_real
from deformrs.config import Config, ConfigValue
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError

Places = NDArray[np.int64]
_MOST = 0.5


def split(labels: Sequence[int], share: float, seed: int) -> tuple[Places, Places]:
    """The images to train on and those held out, a `share` of each class; both in order.

    Which ones follows from the labels, the share and the seed alone, on every machine. Every class
    keeps an image to train on. A share of 0 holds out none.

    >>> trained, held_out = split([0, 0, 0, 0, 1, 1, 1, 1], 0.25, seed=0)
    >>> len(trained), [int(place) // 4 for place in held_out]
    (6, [0, 1])
    """
    check_seed("seed", seed)
    check_share(share)
    classes = np.asarray(labels, np.int64)
    everything = np.arange(len(classes))
    if share == 0:
        return everything, everything[:0]
    # A bit generator's own numbers: NumPy promises that they stay the same.
    drawn = np.random.PCG64(seed).random_raw(len(classes))
    shuffled = np.argsort(drawn, kind="stable")
    members = [shuffled[classes[shuffled] == name] for name in np.unique(classes)]
    counts = _quotas([len(found) for found in members], share)
    if not sum(counts):
        raise InputError(
            "the share to hold out",
            repr(share),
            f"must hold out at least one of {len(classes)} images, and leave one of each class",
            "take a larger share, or 0 for none",
        )
    held_out = np.sort(
        np.concatenate([found[:count] for found, count in zip(members, counts, strict=True)])
    )
    return np.setdiff1d(everything, held_out), held_out


def check_share(share: object) -> None:
    """A share of the images that may be held out."""
    if not (is_real(share) and 0 <= share <= _MOST):  # type: ignore[operator]
        raise InputError(
            "the share to hold out", repr(share), f"must lie in [0, {_MOST}]", "e.g. 0.05"
        )


def _quotas(sizes: Sequence[int], share: float) -> list[int]:
    """How many of each class: their shares rounded down, then one more where most is missing."""
    counts = [min(int(share * size), size - 1) for size in sizes]
    missing = [share * size - count for size, count in zip(sizes, counts, strict=True)]
    left = round(share * sum(sizes)) - sum(counts)
    for place in sorted(range(len(sizes)), key=lambda place: -missing[place]):
        if left > 0 and counts[place] < sizes[place] - 1:
            counts[place] += 1
            left -= 1
    return counts


Split = Literal["test", "train"]
SplitAsked = Literal["test", "train", "held-out"]
"""The third is a part of the second."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(ABC):
    """Labelled images by number: pixels [c, h, w] in [0, 1], prepared for the model, and a label.

    `about` is what a run's configuration says of the set: where it comes from, how many images
    it has, a digest that changes when they do, which rule gave the labels, how it is prepared.
    Nothing is decoded before it is asked for.
    """

    name: str
    class_names: tuple[str, ...] | None
    labels: tuple[int, ...]
    about: Config
    preparation: Preparation

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        """The image and its label; an image that cannot be read raises and is named."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has no image {index}: it has {len(self)}")
        return self._prepared(index), self.labels[index]

    def __repr__(self) -> str:
        return f"<{self.name}, {len(self):,} images>"

    def __iter__(self) -> Iterator[tuple[Pixels, int]]:
        return (self[index] for index in range(len(self)))

    @abstractmethod
    def source(self, index: int) -> str:
        """Which image that is, in one line for records, messages and reports."""

    @abstractmethod
    def _prepared(self, index: int) -> Pixels:
        """The pixels of an image that exists."""


@dataclass(frozen=True)
class Wanted:
    """What was asked of `load_data`, checked once."""

    source: str
    preparation: Preparation
    split: Split
    class_names: tuple[str, ...] | None
    num_classes: int | None

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise InputError("split", repr(self.split), "must be 'train' or 'test'", "choose one")
        if self.num_classes is not None:
            check_integer("the number of classes", self.num_classes, least=1)
        elif self.class_names is not None:
            object.__setattr__(self, "num_classes", len(self.class_names))

    def about(self, name: str, split: str | None, images: int, digest: str, rule: str) -> Config:
        """What a run's configuration says of the set that was found."""
        return {
            "source": self.source,
            "name": name,
            "split": split,
            "pictures": images,
            "sha256": digest,
            "labels": rule,
            "preparation": self.preparation.to_config(),
        }


def one_line(text: str) -> str:
    r"""A file's name as it can be printed, whatever is in it.

    >>> one_line("a\nb.png")
    'a\\nb.png'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass(frozen=True, eq=False, repr=False)
class PartSet(ImageSet):
    """The images of `whole` at these places, in their order.

    They are numbered anew from 0; `source` says which of the whole set an image is.
    """

    whole: ImageSet
    places: tuple[int, ...]

    def source(self, index: int) -> str:
        return self.whole.source(self.places[index])

    def _prepared(self, index: int) -> Pixels:
        return self.whole[self.places[index]][0]


def part_of(whole: ImageSet, places: NDArray[np.int64], name: str, split: str) -> PartSet:
    """That part under a name of its own; its digest follows from the places and the whole set's."""
    digest = hashlib.sha256(str(whole.about["sha256"]).encode() + places.astype("<i8").tobytes())
    return PartSet(
        name,
        whole.class_names,
        tuple(whole.labels[place] for place in places),
        whole.about
        | {
            "name": name,
            "split": split,
            "pictures": len(places),
            "sha256": digest.hexdigest(),
        },
        whole.preparation,
        whole,
        tuple(places.tolist()),
    )


HELD_OUT = "held-out"
"""What the split is called."""
_KEY = "held_out"


@dataclass(frozen=True)
class HeldOut:
    """Which images of its training split a training held out: a share of each class, by a seed.

    `sha256` is the digest of that split, so that no other one is taken for it; None: of any. Of a
    folder it covers names and labels.

    Guarantee: a training on that split with this share and this seed has seen none of these
    images, and all others.
    """

    share: float
    seed: int
    sha256: str | None = None

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)
        check_share(self.share)
        if not self.share:
            raise InputError(
                "the share to hold out", repr(self.share), "must be above 0", "e.g. 0.1"
            )

    def of(self, whole: ImageSet) -> PartSet:
        """Those of that training split, numbered from 0 in its order; each keeps its `source`."""
        if self.sha256 not in (None, whole.about["sha256"]):
            raise InputError(
                f"the training split of {whole.name}",
                f"another one than was trained on ({len(whole):,} images, digest "
                f"{str(whole.about['sha256'])[:8]} in place of {str(self.sha256)[:8]})",
                "must be the same, or nobody knows which images were held out",
                "restore the data, or train again",
            )
        _, places = split(whole.labels, self.share, self.seed)
        part = part_of(whole, places, f"{whole.name} (held out of training)", HELD_OUT)
        drawn: Config = {
            "share": self.share,
            "seed": self.seed,
            "sha256": str(whole.about["sha256"]),
        }
        return dataclasses.replace(part, about=part.about | {_KEY: drawn})

    @classmethod
    def from_about(cls, about: ConfigValue) -> Self | None:
        """What the configuration of a run says of its images; None where it says nothing."""
        found = about.get(_KEY) if isinstance(about, dict) else None
        if found is None:
            return None
        match found:
            case {"share": float() | int() as share, "seed": int() as seed, "sha256": str() as sha}:
                return cls(share, seed, sha)
        raise InputError(
            f"{_KEY} of a run's data",
            repr(found),
            "must be share, seed and sha256 as deformrs wrote them",
            "restore its config.json",
        )
