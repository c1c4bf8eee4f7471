"""The pictures that a training held out, to choose by without a look at the test pictures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

from deformrs.checks import check_seed
from deformrs.config import Config, ConfigValue
from deformrs.data.base import PictureSet
from deformrs.data.part import PartSet, part_of
from deformrs.errors import InputError
from deformrs.splitting import check_share, split

HELD_OUT = "held-out"
"""What the split is called."""
_KEY = "held_out"


@dataclass(frozen=True)
class HeldOut:
    """Which pictures of its training split a training held out: a share of each class, by a seed.

    `sha256` is the digest of that split, so that no other one is taken for it; None: of any. Of a
    folder it covers names and labels.

    Guarantee: a training on that split with this share and this seed has seen none of these
    pictures, and all others.
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

    def of(self, whole: PictureSet) -> PartSet:
        """Those of that training split, numbered from 0 in its order; each keeps its `source`."""
        if self.sha256 not in (None, whole.about["sha256"]):
            raise InputError(
                f"the training split of {whole.name}",
                f"another one than was trained on ({len(whole):,} pictures, digest "
                f"{str(whole.about['sha256'])[:8]} in place of {str(self.sha256)[:8]})",
                "must be the same, or nobody knows which pictures were held out",
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
        """What the configuration of a run says of its pictures; None where it says nothing."""
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
