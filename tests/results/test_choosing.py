"""docs/choosing.md: its tables are those of the committed runs."""

from __future__ import annotations

import re
from pathlib import Path

import choosing

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_runs() -> None:
    for name, lines in choosing.tables().items():
        assert "\n".join(["", *lines, ""]) in PAGE, name


def test_the_figures_are_there() -> None:
    shown = set(re.findall(r"\(images/(choosing-[\w-]+\.png)\)", PAGE))
    assert shown == set(choosing.FIGURES)
    assert all((ROOT / "docs" / "images" / name).is_file() for name in shown)


def test_other_radii_than_the_requested_ones_are_left_out() -> None:
    rows = choosing.scales(["affine-0.2", "affine-0.3"], (0.3, 0.5), "")
    assert rows[1][2] == "–", "not 0: sampling stopped once 0.3 was decided"
    assert float(rows[2][2].strip("*")) > 50
