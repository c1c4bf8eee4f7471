"""One run of a sweep: a network to train and to certify, and how far its folder has come."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deformrs.cli.options import (
    DataOptions,
    ModelOptions,
    SamplingOptions,
    SmoothingOptions,
    plain_options,
)
from deformrs.cli.training_options import StartOptions, TrainingOptions, TrainingRequest
from deformrs.config import Config, ConfigValue
from deformrs.data.loading import certified_data
from deformrs.dataset import select_indices
from deformrs.errors import InputError
from deformrs.models.saved import MODEL, TRAINING, WEIGHTS, of_file
from deformrs.runs import CERTIFICATES, CONFIG, Result, read_config, read_run, write_atomically
from deformrs.runs.files import file_digest, stored_bytes
from deformrs.runs.records import read_sealed, sealed
from deformrs.specs import python_files
from deformrs.stopping import Query
from deformrs.training.output import EPOCHS

MARK = "sweep.json"
"""Written into the folder of a finished run: every option its results depend on."""

MACHINE_OPTIONS = (
    *("device", "devices", "compile", "workers", "data_root"),
    *("checkpoint_seconds", "tensorboard", "max_pixels"),
)
"""Options that decide where and how fast a run is computed, but not its results."""


@dataclass(frozen=True)
class SweepRun:
    """A network to train and to certify, with all options, in a folder of its own."""

    folder: Path
    start: StartOptions
    data: DataOptions
    smoothing: SmoothingOptions
    training: TrainingOptions
    model: ModelOptions
    test: DataOptions
    sampling: SamplingOptions
    queries: tuple[Query, ...]
    network: SweepRun | None = None
    """The run whose network this one certifies; None: it trains its own."""
    begin: SweepRun | None = None
    """The run whose weights its training begins with; None: it begins as `start` says."""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def needed(self) -> SweepRun | None:
        """The run that must be done before this one."""
        return self.network or self.begin

    @property
    def request(self) -> TrainingRequest:
        """The options of its training, which may begin with the network of another run."""
        start = self.start
        if self.begin is not None:
            model, weights = network_in(self.begin.folder, start.model)
            start = dataclasses.replace(start, model=model, weights=weights, pretrained=False)
        return TrainingRequest(start, self.data, self.smoothing, self.training)

    def is_done(self) -> bool:
        """Return whether it is certified with these very options.

        If it needs another run, that one must be done too, with the weights this one was given.
        """
        if not (self.folder / CONFIG).exists() or _read_json(self.folder / MARK) != self._mark():
            return False
        certified, requested = self._certified()
        return certified >= requested and (self.needed is None or self.needed.is_done())

    def progress(self) -> str:
        """Describe how far it has come in a few words."""
        if (self.folder / CONFIG).exists():
            if self.is_done():
                return "done"
            certified, requested = self._certified()
            finished = (self.folder / MARK).exists() and certified >= requested
            return f"certified {certified} of {requested}" + ", other options" * finished
        if self.network is None and (self.folder / MODEL).exists():
            return "trained"
        if self.network is None and (self.folder / TRAINING).exists():
            epochs = (stored_bytes(self.folder / EPOCHS) or b"").count(b"\n")
            return f"training, {epochs} epochs done"
        return "not begun"

    def mark_done(self) -> None:
        """Record that the run is finished with these options."""
        write_atomically(self.folder / MARK, sealed(self._mark()))

    def results(self) -> list[Result]:
        """Read the results of the requested images."""
        stored = read_run(self.folder)
        requested = self._requested(stored.config)
        if len(stored.results) > len(requested):  # from an earlier run with a larger max
            requested = self._requested(stored.config, certified_data(stored).labels)
        return [result for result in stored.results if result.index in requested]

    def check_ready(self) -> None:
        """Raise unless the run it needs is done and its folder can hold its results."""
        if self.needed is not None and not self.needed.is_done():
            raise InputError(
                f"the run {self.needed.name}, which {self.name} needs",
                self.needed.progress(),
                "must be done",
                "run that one first",
            )
        if self.network is not None and (self.folder / TRAINING).exists():
            raise InputError(
                f"the folder {self.folder}",
                "one that holds a training",
                f"cannot also hold certificates of the network {self.network.name}",
                "remove it, or give the run another name",
            )

    def _mark(self) -> Config:
        """All options that the results depend on, and the digests of the files they name."""
        stopping = self.sampling.stopping(self.queries)
        options: dict[str, dict[str, object]] = {
            "recipe": {
                "scratch": self.training.recipe_for(pretrained=False).to_config(),
                "pretrained": self.training.recipe_for(pretrained=True).to_config(),
            },
            "files": {path.name: file_digest(path) for path in self._files()},
            "start": dataclasses.asdict(self.start),
            "data": dict(plain_options(self.data)),
            "smoothing": dataclasses.asdict(self.smoothing),
            "training": dataclasses.asdict(self.training),
            "test": dict(plain_options(self.test)),
            "sampling": dataclasses.asdict(self.sampling) | {"seed": self._seed()},
            "stopping": dict(stopping.to_config()) if stopping else {},
            "model": {"precision": self.model.precision},
        }
        if self.needed is not None:
            model = _read_json(self.needed.folder / MODEL) or {}
            options["needed"] = {"name": self.needed.name, "sha256": model.get("sha256")}
        if not self.sampling.simultaneous:  # marks of version 0.1.0 do not have it
            del options["sampling"]["simultaneous"]
        for table in options.values():
            for key in MACHINE_OPTIONS:
                table.pop(key, None)
        mark: Config = json.loads(json.dumps(options))  # tuples become lists, as in the file
        return mark

    def _seed(self) -> ConfigValue:
        """Return the seed of its certificates: the one requested, or the one that was drawn."""
        if self.sampling.seed is None and (self.folder / CONFIG).exists():
            return read_config(self.folder).get("seed")
        return self.sampling.seed

    def _files(self) -> list[Path]:
        """Files whose content the results depend on: code, weights, arrays of images."""
        names = [self.start.model.partition(".py:")[0] + ".py", self.data.data, self.test.data]
        named = [*map(Path, names), *python_files(self.smoothing.deformation)]
        named += [] if self.start.weights is None else [Path(self.start.weights)]
        return [path for path in named if path.is_file()]

    def _certified(self) -> tuple[int, int]:
        """Count the certificates, and the images that are to be certified."""
        requested = len(self._requested(read_config(self.folder)))
        lines = (stored_bytes(self.folder / CERTIFICATES) or b"").count(b"\n")
        return min(lines, requested), requested

    def _requested(self, config: Config, labels: Sequence[int] | None = None) -> Sequence[int]:
        data = config.get("data")
        total = data.get("pictures") if isinstance(data, dict) else None
        if not isinstance(total, int):
            raise InputError(
                str(self.folder / CONFIG), "of another kind", "must be from a sweep", "remove it"
            )
        return select_indices(total, self.sampling.skip, self.sampling.max, labels)


def network_in(folder: Path, model: str) -> tuple[str, str | None]:
    """Return the model and weights that name the network trained into `folder` as `model`.

    A folder never makes a Python file run: such a network is named by its file and its weights.
    """
    return (model, str(folder / WEIGHTS)) if of_file(model) else (str(folder), None)


def _read_json(path: Path) -> Config | None:
    """Return the mapping in a file; None if there is none, empty if it is damaged.

    A damaged mark matches no options, so the run is gone through again and writes it anew.
    """
    if not path.exists():
        return None
    try:
        return read_sealed(path)
    except ValueError:
        return {}
