"""Which runs can be compared by their samples: those of one classifier."""

from __future__ import annotations

from collections.abc import Sequence

from deformrs.benchmarks.samples import N0
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.runs import StoredRun

_SAME = (
    *("model", "deformation", "plugins", "noise", "padding", "num_classes", "alpha", "seed"),
    *("device", "torch", "compiled", "version"),
)
"""In what runs must agree, to differ in their samples alone."""


def check_alike(runs: Sequence[StoredRun]) -> None:
    """Raise unless all are different runs of one classifier, with results."""
    first, places = runs[0], [run.folder.resolve() for run in runs]
    for number, run in enumerate(runs):
        if not run.results:
            raise InputError("the run", run.folder, "must have results", "certify it first")
        if places[number] in places[:number]:
            raise InputError("the runs", f"{run.folder} twice", "must differ", "give each once")
        model = run.config.get("model")
        if isinstance(model, dict) and "function" in model:
            raise InputError(
                f"the model of {run.folder}",
                "a function, known by its name only",
                "must be a network, to tell it from others",
                "leave that run out",
            )
        for key in _SAME:
            if run.config.get(key) != first.config.get(key):
                raise InputError(
                    f"{key} of {run.folder}",
                    f"not that of {first.folder}",
                    "must be the same, to compare samples alone",
                    "count runs of one classifier",
                )
        if run.config.get("n0") != N0:
            raise InputError(
                f"n0 of {run.folder}", run.config.get("n0"), f"must be {N0}", "leave that run out"
            )
    rules = {_given_up(run.config) for run in runs if "stopping" in run.config}
    if len(rules) > 1:
        raise InputError(
            "the rule to stop by",
            "not the same in all runs",
            "must be, to compare samples alone",
            "certify those of another version again",
        )


def fixed_of(runs: Sequence[StoredRun]) -> StoredRun | None:
    """The run that drew a fixed number of samples, which the others are compared with."""
    fixed = [run for run in runs if "stopping" not in run.config]
    if len(fixed) > 1:
        raise InputError(
            "the runs with a fixed number of samples",
            ", ".join(str(run.folder) for run in fixed),
            "must be one, with which the others are compared",
            "leave the others out",
        )
    for run in fixed:
        most = max(whole(other.config, "n") for other in runs)
        if run.config.get("method") != "clopper_pearson" or whole(run.config, "n") < most:
            raise InputError(
                f"the protocol of {run.folder}",
                f"{run.config.get('method')} with n = {run.config.get('n')}",
                f"must be the paper's, clopper_pearson, with n of at least {most}",
                "certify it so, or leave it out",
            )
    return fixed[0] if fixed else None


def _given_up(config: Config) -> object:
    stopping = config.get("stopping")
    return stopping.get("given_up") if isinstance(stopping, dict) else None


def whole(config: Config, key: str) -> int:
    """An integer of a run's configuration."""
    value = config.get(key)
    if not isinstance(value, int):
        raise InputError(f"{key} of a run", repr(value), "must be an integer", "certify again")
    return value
