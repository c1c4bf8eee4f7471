"""Labelled images: the type of every dataset, and the part of one that a training held out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from deformrs.checks import check_choice, check_integer, check_seed, is_real
from deformrs.config import Config, ConfigValue
from deformrs.data.labels import BY_FOLDER_ORDER, BY_NUMBER, ClassIndices, normalized
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError, printable

Indices = NDArray[np.int64]
StoredSplit = Literal["test", "train"]
Split = Literal["test", "train", "held-out"]
"""A stored split, or the part of the training split that a training held out."""

HELD_OUT: Final = "held-out"
_MAX_SHARE = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(ABC):
    """Labelled images by index: pixels [c, h, w] in [0, 1], prepared for the model, and a label.

    An image is decoded when it is accessed. `about` describes the dataset in the configuration of
    a run: its source, size and digest, the rule that gave the labels, and the preparation.
    `class_indices` is the model's class index of each class as the dataset names it.
    """

    name: str
    class_names: tuple[str, ...] | None
    labels: tuple[int, ...]
    about: Config
    preparation: Preparation
    class_indices: ClassIndices = field(default_factory=dict, kw_only=True)

    @property
    def reads_files(self) -> bool:
        """Whether an image is read from a file of its own whenever it is accessed."""
        return False

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        """Return an image and its label; raise `InputError` if the image cannot be read."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has no image {index}: it has {len(self)}")
        return self._load(index), self.labels[index]

    def __repr__(self) -> str:
        return f"<{self.name}, {len(self):,} images>"

    @property
    def is_matched_by_order(self) -> bool:
        """Whether the sorted names of class folders gave the labels, which may not fit a model."""
        return self.about["labels"] == BY_FOLDER_ORDER

    def label_words(self, model_classes: Sequence[str] | None = None, most: int = 4) -> str:
        """Return the rule that gave the labels and the first `most` classes as matched.

        `model_classes` are the model's names, shown where they differ from the dataset's.

        >>> from deformrs.data import load_data
        >>> load_data("digits").label_words(["zero", "one", "two", *"3456789"], most=3)
        'as published: 0 (zero), 1 (one), 2 (two), … (10 classes)'
        """
        rule = str(self.about["labels"]).replace(BY_NUMBER, "integers").replace(": ", ", ")
        pairs = sorted(self.class_indices.items(), key=lambda pair: pair[1])
        words = [_match_words(name, index, model_classes) for name, index in pairs[:most]]
        if len(pairs) > most:
            words.append(f"… ({len(pairs):,} classes)")
        return f"{rule}: {', '.join(words)}"

    def __iter__(self) -> Iterator[tuple[Pixels, int]]:
        return (self[index] for index in range(len(self)))

    @abstractmethod
    def source(self, index: int) -> str:
        """Return the name of an image for records, messages and reports, on one line."""

    @abstractmethod
    def _load(self, index: int) -> Pixels:
        """Return the prepared pixels; `index` has been checked."""


def _match_words(name: str, index: int, model_classes: Sequence[str] | None) -> str:
    """Return words such as `n01440764 = 0 (tench)` for one class of a dataset."""
    own = model_classes[index] if model_classes and index < len(model_classes) else name
    words = str(index) if name == str(index) else f"{printable(name)} = {index}"
    return words if normalized(own) == normalized(name) else f"{words} ({printable(own)})"


@dataclass(frozen=True)
class DataRequest:
    """The arguments of `load_data`, checked."""

    source: str
    preparation: Preparation
    split: StoredSplit
    class_names: tuple[str, ...] | None
    num_classes: int | None

    def __post_init__(self) -> None:
        check_choice("split", self.split, get_args(StoredSplit))
        if self.num_classes is not None:
            check_integer("the number of classes", self.num_classes, least=1)
        elif self.class_names is not None:
            object.__setattr__(self, "num_classes", len(self.class_names))

    def about(self, name: str, split: str | None, images: int, digest: str, rule: str) -> Config:
        """Return the description of the loaded dataset for the configuration of a run."""
        return {
            "source": self.source,
            "name": name,
            "split": split,
            "pictures": images,
            "sha256": digest,
            "labels": rule,
            "preparation": self.preparation.to_config(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Subset(ImageSet):
    """Some images of a dataset, numbered from 0; `source` names them as the dataset does."""

    dataset: ImageSet
    indices: tuple[int, ...]

    @property
    def reads_files(self) -> bool:
        return self.dataset.reads_files

    def source(self, index: int) -> str:
        return self.dataset.source(self.indices[index])

    def _load(self, index: int) -> Pixels:
        return self.dataset[self.indices[index]][0]


def stratified_split(labels: Sequence[int], share: float, seed: int) -> tuple[Indices, Indices]:
    """Return the indices to train on and those held out, a `share` of each class, both sorted.

    The result depends on labels, share and seed alone, on every machine. Every class keeps at
    least one image to train on; a share of 0 holds out none.

    >>> train, held_out = stratified_split([0, 0, 0, 0, 1, 1, 1, 1], 0.25, seed=0)
    >>> len(train), [int(index) // 4 for index in held_out]
    (6, [0, 1])
    """
    check_seed("seed", seed)
    check_share(share)
    classes = np.asarray(labels, np.int64)
    indices = np.arange(len(classes))
    if share == 0:
        return indices, indices[:0]
    # The raw output of a bit generator: NumPy promises that it stays the same.
    keys = np.random.PCG64(seed).random_raw(len(classes))
    shuffled = np.argsort(keys, kind="stable")
    members = [shuffled[classes[shuffled] == label] for label in np.unique(classes)]
    counts = _held_out_counts([len(group) for group in members], share)
    if not sum(counts):
        raise InputError(
            "the share to hold out",
            repr(share),
            f"must hold out at least one of {len(classes)} images, and leave one of each class",
            "use a larger share, or 0 for none",
        )
    chosen = [group[:count] for group, count in zip(members, counts, strict=True)]
    held_out = np.sort(np.concatenate(chosen))
    return np.setdiff1d(indices, held_out), held_out


def check_share(share: object) -> None:
    """Raise unless `share` is a fraction of the training images that may be held out."""
    if not (is_real(share) and 0 <= share <= _MAX_SHARE):  # type: ignore[operator]
        raise InputError(
            "the share to hold out", repr(share), f"must lie in [0, {_MAX_SHARE}]", "e.g. 0.05"
        )


def _held_out_counts(sizes: Sequence[int], share: float) -> list[int]:
    """Return the images to hold out of each class, by the largest-remainder method."""
    counts = [min(int(share * size), size - 1) for size in sizes]
    remainders = [share * size - count for size, count in zip(sizes, counts, strict=True)]
    missing = round(share * sum(sizes)) - sum(counts)
    for label in sorted(range(len(sizes)), key=lambda label: -remainders[label]):
        if missing > 0 and counts[label] < sizes[label] - 1:
            counts[label] += 1
            missing -= 1
    return counts


@dataclass(frozen=True)
class HeldOut:
    """The images of its training split that a training held out: a share of each class, by a seed.

    `sha256` is the digest of the training split they belong to; None accepts any. The digest of a
    folder covers file names and labels.

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

    def of(self, training: ImageSet) -> Subset:
        """Return the held-out images of a training split, in its order."""
        split_digest = str(training.about["sha256"])
        if self.sha256 not in (None, split_digest):
            raise InputError(
                f"the training split of {training.name}",
                f"not the one trained on ({len(training):,} images, digest {split_digest[:8]} "
                f"instead of {str(self.sha256)[:8]})",
                "must be unchanged, as the held-out images depend on it",
                "restore the data, or train again",
            )
        _, indices = stratified_split(training.labels, self.share, self.seed)
        name = f"{training.name} (held out of training)"
        digest = hashlib.sha256(split_digest.encode() + indices.astype("<i8").tobytes())
        about = training.about | {
            "name": name,
            "split": HELD_OUT,
            "pictures": len(indices),
            "sha256": digest.hexdigest(),
            "held_out": {"share": self.share, "seed": self.seed, "sha256": split_digest},
        }
        labels = tuple(training.labels[index] for index in indices)
        return Subset(
            name,
            training.class_names,
            labels,
            about,
            training.preparation,
            training,
            tuple(indices.tolist()),
            class_indices=training.class_indices,
        )

    @classmethod
    def from_about(cls, about: ConfigValue) -> Self | None:
        """Read the held-out part from the `data` of a run's configuration; None if it has none."""
        stored = about.get("held_out") if isinstance(about, dict) else None
        match stored:
            case None:
                return None
            case {"share": float() | int() as share, "seed": int() as seed, "sha256": str() as sha}:
                return cls(share, seed, sha)
        raise InputError(
            "held_out of a run's data",
            repr(stored),
            "must be share, seed and sha256 as deformrs wrote them",
            "restore its config.json",
        )
