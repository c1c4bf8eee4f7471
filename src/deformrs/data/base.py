"""What every set of labelled pictures promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from deformrs.checks import check_whole
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.preparation import Pixels, Preparation

Split = Literal["test", "train"]
SplitAsked = Literal["test", "train", "held-out"]
"""The third is a part of the second."""


@dataclass(frozen=True, eq=False, repr=False)
class PictureSet(ABC):
    """Labelled pictures by number: pixels [c, h, w] in [0, 1], prepared for the model, and a label.

    `about` is what a run's configuration says of the set: where it comes from, how many pictures
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
        """The picture and its label; a picture that cannot be read raises and is named."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has no picture {index}: it has {len(self)}")
        return self._prepared(index), self.labels[index]

    def __repr__(self) -> str:
        return f"<{self.name}, {len(self):,} pictures>"

    def __iter__(self) -> Iterator[tuple[Pixels, int]]:
        return (self[index] for index in range(len(self)))

    @abstractmethod
    def source(self, index: int) -> str:
        """Which picture that is, in one line for records, messages and reports."""

    @abstractmethod
    def _prepared(self, index: int) -> Pixels:
        """The pixels of a picture that exists."""


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
            check_whole("the number of classes", self.num_classes, least=1)
        elif self.class_names is not None:
            object.__setattr__(self, "num_classes", len(self.class_names))

    def about(self, name: str, split: str | None, pictures: int, digest: str, rule: str) -> Config:
        """What a run's configuration says of the set that was found."""
        return {
            "source": self.source,
            "name": name,
            "split": split,
            "pictures": pictures,
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
