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

EPOCHS, TRAINING, WEIGHTS = "epochs.jsonl", "training.json", "model.safetensors"
"""What a training writes a line an epoch into, what it was asked, and its network."""
_UNKNOWN = "–"


@dataclass(frozen=True)
class Facts:
    """Settings and costs of a run; None is what its folder does not tell."""

    epochs: int | None
    begun: str
    """The run whose weights training began with; empty where it began otherwise."""
    training_seconds: float | None
    images: int | None
    """How many the data set has."""
    n: int
    """The most samples an image could get."""
    samples: int
    """All that were drawn, in both stages."""
    until: str
    """When sampling stopped early, in words; empty where it never did."""
    settled_only: bool
    """Was only what was asked settled, so that its average radius is a lower bound?"""
    device: str
    precision: str
    seconds: float | None
    """The time of the images whose time is known, and how many these are."""
    timed: int


def facts_of(run: StoredRun) -> Facts:
    """Read what the folder tells beside the certificates."""
    config, counts = run.config, [result.certificate.counts for result in run.results]
    epochs, training = _training(run.folder)
    begun = _begun(run.folder)
    times = read_times(run.folder)
    known = [times[result.index] for result in run.results if result.index in times]
    n, images = config.get("n"), lookup(config, "data", "pictures")
    return Facts(
        epochs=epochs,
        begun=begun,
        training_seconds=training,
        images=images if isinstance(images, int) else None,
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
    """How many epochs, and the seconds of all."""
    path = _found(folder, EPOCHS)
    if path is None:
        return None, None
    try:
        # What comes after the last line break is a line that a training is about to finish.
        lines = path.read_bytes().rpartition(b"\n")[0].decode("utf-8").splitlines()
        seconds = [json.loads(line)["seconds"] for line in lines if line.strip()]
        if not all(is_real(value) and value >= 0 for value in seconds):
            raise ValueError("seconds must be numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    return len(seconds), math.fsum(seconds)


def _begun(folder: Path) -> str:
    path = _found(folder, TRAINING)
    if path is None:
        return ""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(note, dict):
            raise ValueError("no mapping")
    except ValueError as error:
        raise _damaged(path, error) from None
    model = lookup(note, "options", "model")
    # Weights of that name are those of a folder; else a network has its own name.
    of_run = lookup(note, "model", "files", WEIGHTS) is not None
    return Path(model).name if of_run and isinstance(model, str) else ""


def _found(folder: Path, name: str) -> Path | None:
    """A file of the training. The best epoch lies in a folder of it."""
    places = [folder, folder.resolve().parent] if folder.resolve().name == "best" else [folder]
    return next((place / name for place in places if (place / name).is_file()), None)


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        str(path), f"damaged ({error!r})", "must be as deformrs train wrote it", "restore it"
    )
