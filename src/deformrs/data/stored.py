"""The pictures of a run, read again from where they came. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from deformrs.data.base import PictureSet
from deformrs.data.held_out import HeldOut
from deformrs.data.loading import load_data
from deformrs.errors import DeformRSError, InputError
from deformrs.preparation import Pixels, Preparation, digest_of_pixels
from deformrs.runs import Result, StoredRun
from deformrs.runs.places import located


def data_of(run: StoredRun) -> PictureSet:
    """The pictures that a run's configuration names."""
    options, data = run.config.get("options"), run.config.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        raise InputError(
            "the run", "silent about its pictures", "must name them", "make it by deformrs certify"
        )
    names, root = data["class_names"], options["data_root"]
    return load_data(
        located(str(options["data"]), run.folder, options),
        Preparation.from_config(data["preparation"]),  # type: ignore[arg-type]
        split=options["split"],  # type: ignore[arg-type]
        held_out=HeldOut.from_about(data),
        class_names=None if names is None else tuple(map(str, names)),  # type: ignore[arg-type]
        num_classes=run.config["num_classes"],  # type: ignore[arg-type]
        root=None if root is None else Path(located(str(root), run.folder, options)),
    )


class StoredPictures:
    """Hands over the picture of a result, or None, and remembers in `missing` why it could not."""

    def __init__(self) -> None:
        self._sets: dict[Path, PictureSet | None] = {}
        self.missing: list[str] = []

    def __call__(self, run: StoredRun, result: Result) -> Pixels | None:
        if run.folder not in self._sets:
            self._sets[run.folder] = self._open(run)
        pictures = self._sets[run.folder]
        if pictures is None:
            return None
        try:
            pixels, _ = pictures[result.index]
        except (DeformRSError, OSError, IndexError) as error:
            self.missing.append(f"{result.source} cannot be shown: {error}")
            return None
        if digest_of_pixels(pixels) != result.pixels:
            self.missing.append(f"{result.source} is not shown: it changed since it was certified")
            return None
        return pixels

    def _open(self, run: StoredRun) -> PictureSet | None:
        try:
            return data_of(run)
        except (DeformRSError, OSError) as error:
            self.missing.append(f"the pictures of {run.folder} are not shown: {error}")
            return None
