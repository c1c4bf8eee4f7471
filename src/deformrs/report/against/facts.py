"""How a run was made: its training and its certification, as far as its folder tells."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from deformrs.checks import is_real
from deformrs.errors import InputError
from deformrs.report.export import clock
from deformrs.report.groups import lookup
from deformrs.report.words import stopping_words
from deformrs.runs import StoredRun, read_times

EPOCHS = "epochs.jsonl"
"""What a training writes a line an epoch into."""
_UNKNOWN = "–"


@dataclass(frozen=True)
class Facts:
    """Settings and costs of a run; None is what its folder does not tell."""

    epochs: int | None
    training_seconds: float | None
    pictures: int | None
    """How many the data set has."""
    n: int
    """The most samples a picture could get."""
    samples: int
    """All that were drawn, in both stages."""
    until: str
    """When sampling stopped early, in words; empty where it never did."""
    settled_only: bool
    """Was only what was asked settled, so that its average radius is a lower bound?"""
    device: str
    precision: str
    seconds: float | None
    """The time of the pictures whose time is known, and how many these are."""
    timed: int


def facts_of(run: StoredRun) -> Facts:
    """Read what the folder tells beside the certificates."""
    config, counts = run.config, [result.certificate.counts for result in run.results]
    epochs, training = _training(run.folder)
    times = read_times(run.folder)
    known = [times[result.index] for result in run.results if result.index in times]
    n, pictures = config.get("n"), lookup(config, "data", "pictures")
    return Facts(
        epochs=epochs,
        training_seconds=training,
        pictures=pictures if isinstance(pictures, int) else None,
        n=n if isinstance(n, int) else max(count.n for count in counts),
        samples=sum(count.n0 + count.n for count in counts),
        until=stopping_words(config),
        settled_only="stopping" in config and lookup(config, "stopping", "tolerance") is None,
        device=str(config.get("device") or _UNKNOWN),
        precision=str(lookup(config, "model", "precision") or _UNKNOWN),
        seconds=math.fsum(known) if known else None,
        timed=len(known),
    )


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds, or a dash where nobody knows.

    >>> duration(3725.5)
    '1:02:05'
    """
    return _UNKNOWN if seconds is None else clock(seconds).partition(".")[0]


def _training(folder: Path) -> tuple[int | None, float | None]:
    """How many epochs, and the seconds of all. The best epoch lies in a folder of the training."""
    places = [folder, folder.resolve().parent] if folder.resolve().name == "best" else [folder]
    path = next((place / EPOCHS for place in places if (place / EPOCHS).is_file()), None)
    if path is None:
        return None, None
    try:
        # What comes after the last line break is a line that a training is about to finish.
        lines = path.read_bytes().rpartition(b"\n")[0].decode("utf-8").splitlines()
        seconds = [json.loads(line)["seconds"] for line in lines if line.strip()]
        if not all(is_real(value) and value >= 0 for value in seconds):
            raise ValueError("seconds must be numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            str(path), f"damaged ({error!r})", "must be as deformrs train wrote it", "restore it"
        ) from None
    return len(seconds), math.fsum(seconds)
