"""Results as a pandas DataFrame, and as the TSV log of randomized smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deformrs.errors import InputError, UnsupportedError, install_command
from deformrs.report.radii import float_down, radius_of
from deformrs.rounding import format_down
from deformrs.runs import Result, read_run
from deformrs.space import Block

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


HEADER = ("idx", "label", "predict", "radius", "correct", "time")
ABSTAIN = -1
# More decimals than a double has: read back, it is the radius itself or just below.
_DECIMALS = 17


def export_tsv(results: Sequence[Result], times: Mapping[int, float]) -> str:
    """Return one tab-separated line per image; `times` are seconds by index, empty where unknown.

    The radius is in the package's own unit (radians, half sides, fractions).

    Guarantee: no radius is above the certified one, neither as written nor as a float read back.
    """
    lines = ["\t".join(HEADER)]
    lines += ["\t".join(_values(result, times.get(result.index))) for result in results]
    return "\n".join(lines) + "\n"


def clock(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> clock(3725.5)
    '1:02:05.500000'
    """
    micro = max(0, round(seconds * 10**6))
    minutes, rest = divmod(micro, 60 * 10**6)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10**6:02d}.{rest % 10**6:06d}"


def _values(result: Result, seconds: float | None) -> tuple[str, ...]:
    certificate = result.certificate
    if len(certificate.radii) != 1:
        families = ", ".join(block.family for block in certificate.space.blocks)
        raise UnsupportedError(
            "the log",
            f"requested for a run over {families} together",
            "has one radius per image",
            "use the report's tables or results_frame",
        )
    prediction = ABSTAIN if certificate.prediction is None else certificate.prediction
    radius = format_down(certificate.radius, _DECIMALS).rstrip("0")
    return (
        str(result.index),
        str(result.label),
        str(prediction),
        radius + "0" if radius.endswith(".") else radius,
        str(int(result.correct)),
        "" if seconds is None else clock(seconds),
    )


def results_frame(run: Sequence[Result] | Path | str) -> pandas.DataFrame:
    """Return a DataFrame with one row per image: the prediction and its certified radius.

    `run` is the folder of a run, or results: of `certify`, `load_run` or `certify_dataset`.

    `radius` is in the package's own unit, and once more in the displayed one: `radius_degrees`,
    `radius_px`, `radius_percent` or `radius_coefficient`. A composition has `radius_<family>` and
    `radius_<family>_<unit>` for each of its parts. Where the classifier abstains, `prediction` is
    missing and the radius 0; wrong answers keep theirs, so count `radius * correct`.
    """
    try:
        import pandas as pd
    except ImportError:
        raise InputError(
            "pandas",
            "not installed",
            "is needed for a DataFrame",
            install_command("pandas"),
        ) from None
    results = read_run(run) if isinstance(run, Path | str) else run
    certificates = [result.certificate for result in results]
    columns: dict[str, object] = {
        "index": pd.array([result.index for result in results], dtype="int64"),
        "source": pd.array([result.source for result in results], dtype="object"),
        "label": pd.array([result.label for result in results], dtype="int64"),
        "prediction": pd.array([c.prediction for c in certificates], dtype="Int64"),
        "correct": pd.array([result.correct for result in results], dtype="bool"),
        "plain": pd.array([result.plain for result in results], dtype="Int64"),
    }
    blocks = certificates[0].space.blocks if certificates else ()
    for k, (name, block) in enumerate(zip(_radius_names(blocks), blocks, strict=True)):
        radii = [c.radii[k] for c in certificates]
        displayed = [float_down(radius_of(result, k)) for result in results]
        columns[name] = pd.array(radii, dtype="float64")
        columns[f"{name}_{block.unit.column}"] = pd.array(displayed, dtype="float64")
    columns["p_lower"] = pd.array([c.p_lower for c in certificates], dtype="float64")
    columns["n"] = pd.array([c.counts.n for c in certificates], dtype="int64")
    columns["n0"] = pd.array([c.counts.n0 for c in certificates], dtype="int64")
    columns["alpha"] = pd.array([c.alpha for c in certificates], dtype="float64")
    return pd.DataFrame(columns)


def _radius_names(blocks: tuple[Block, ...]) -> list[str]:
    """Column names, one per block; families that occur twice are numbered."""
    if len(blocks) == 1:
        return ["radius"]
    families = [block.family for block in blocks]
    before = [families[:k].count(family) for k, family in enumerate(families)]
    return [
        f"radius_{family}" + (f"_{count + 1}" if count else "")
        for family, count in zip(families, before, strict=True)
    ]
