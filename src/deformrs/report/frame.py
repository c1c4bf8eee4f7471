"""The results of a run as a pandas DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deformrs.errors import InputError
from deformrs.report.people import COLUMNS, float_down, reach
from deformrs.runs import StoredRun, read_run
from deformrs.space import Block

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


def results_frame(run: StoredRun | Path | str) -> pandas.DataFrame:
    """One row an image: what was predicted and how far it holds.

    `radius` is in the package's own unit, and once more in the one people use: `radius_degrees`,
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
            "pip install 'deformrs[pandas]'",
        ) from None
    stored = run if isinstance(run, StoredRun) else read_run(Path(run))
    results = stored.results
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
        shown = [
            float_down(reach(block, radius, c.space.size))
            for radius, c in zip(radii, certificates, strict=True)
        ]
        columns[name] = pd.array(radii, dtype="float64")
        columns[f"{name}_{COLUMNS[block.unit]}"] = pd.array(shown, dtype="float64")
    columns["p_lower"] = pd.array([c.p_lower for c in certificates], dtype="float64")
    columns["n"] = pd.array([c.counts.n for c in certificates], dtype="int64")
    columns["n0"] = pd.array([c.counts.n0 for c in certificates], dtype="int64")
    columns["alpha"] = pd.array([c.alpha for c in certificates], dtype="float64")
    return pd.DataFrame(columns)


def _radius_names(blocks: tuple[Block, ...]) -> list[str]:
    """A name for each block's radius; families that come twice are numbered."""
    if len(blocks) == 1:
        return ["radius"]
    names: list[str] = []
    for block in blocks:
        again = sum(name.split("#")[0] == f"radius_{block.family}" for name in names)
        names.append(f"radius_{block.family}" + (f"#{again + 1}" if again else ""))
    return [name.replace("#", "_") for name in names]
