"""The committed runs: what is written about them is what their certificates say."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import choosing
from conftest import ROOT
from deformrs import Region
from deformrs.cli.sweep_file import read_sweep
from deformrs.report.reference import read_reference
from deformrs.report.summary import count_certified
from deformrs.rounding import percent_down
from deformrs.runs import Result, StoredRun, load_run, read_config, read_run, runs_in
from deformrs.specs import parse_deformation, parse_noise
from make import read_note
from paper.cells import Board, family_table, make_board
from paper.numbers import UNITS
from paper.page import to_page, to_summary
from paper.runs import count_run

RESULTS = ROOT / "results"
SETS = ("mnist", "cifar10")
IMAGENET = RESULTS / "imagenet"
CHOOSING = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
RADII = {"rotation": math.radians(10), "scaling": 0.15, "translation": 5 / 112, "affine": 0.0651}


@pytest.fixture(scope="module")
def board() -> Board:
    kept = {*choosing.TRANSLATIONS, *choosing.AFFINES, *choosing.COSINES, *choosing.FIELDS}

    def read(run: Path) -> StoredRun:
        """Read a run; those that the tables of docs/choosing.md need too are read once."""
        shared = run.parent.name == "cifar10" and run.name in kept
        return choosing.run_of(run.name) if shared else read_run(run)

    return make_board([count_run(read(run)) for name in SETS for run in runs_in(RESULTS / name)])


def test_the_page_and_the_table_are_those_of_the_runs(board: Board) -> None:
    assert (RESULTS / "summary.csv").read_text() == to_summary(board)
    assert (RESULTS / "README.md").read_text() == to_page(board, read_note())


def test_the_readme_quotes_the_best_of_the_runs(board: Board) -> None:
    text = (ROOT / "README.md").read_text()
    counted = re.search(r"(\d+) of \d+ cells.*?(\d+) of \d+ average", to_page(board))
    claimed = re.search(r"the paper's (\d+) cells and\s+(\d+) average", text)
    assert counted is not None
    assert claimed is not None
    assert counted.groups() == claimed.groups()
    quoted = re.findall(r"^\| (CIFAR-10|MNIST), (.+?) \| ([\d.]+) % \| ([\d.]+) % \|$", text, re.M)
    composed = "rotation up to 10°, scaling by 0.8 to 1.2 and shift, at once"
    meant = {
        "rotation up to 10°": ("rotation", "10"),
        "every rotation": ("rotation", "180"),
        "scaling by up to 20 %": ("scaling", "0.2"),
        "shift by up to 5 px": ("translation", "5"),
        "rotation up to 2° with shear up to 2 %": ("rotation+shear", None),
        composed: ("rotation+scaling+translation", None),
        "every pixel displaced, by up to 5 px in total (ℓ2)": ("vector_field", "5"),
        "smooth fields (DCT, k = 2) of norm up to 0.5": ("dct", "0.5"),
    }
    assert len(quoted) == 10
    for data, words, paper, ours in quoted:
        name, radius = meant[words]
        cell = next(
            cell
            for cell in board.cells_of({"CIFAR-10": "cifar10", "MNIST": "mnist"}[data])
            if cell.deformation == name and radius in (None, cell.radius)
        )
        assert (float(paper), float(ours)) == (float(cell.theirs), float(cell.ours))
    affine = [
        float(cell.ours)
        for data in ("cifar10", "mnist")
        for cell in board.cells_of(data)
        if cell.kind == "route" and cell.deformation.endswith(", affine")
    ]
    said = re.search(r"[Bb]y affine noise ours are ([\d.]+), ([\d.]+) and\s+([\d.]+) %", text)
    assert said is not None
    assert [float(number) for number in said.groups()] == affine


@pytest.mark.parametrize("name", SETS)
def test_the_recipe_is_that_of_the_runs(name: str) -> None:
    planned = read_sweep(RESULTS / f"{name}.toml").runs
    known = {run.name: run for run in planned}
    folders = sorted(path for path in (RESULTS / name).iterdir() if path.is_dir())
    assert [folder.name for folder in folders] == sorted(known)
    for folder in folders:
        run, config = known[folder.name], read_config(folder)
        assert run.is_done(), folder.name
        deformation = parse_deformation(run.smoothing.deformation)
        size = {"mnist": (28, 28), "cifar10": (32, 32)}[name]
        noise = parse_noise(run.smoothing.noise, deformation.space(size)).to_config()
        stopping = run.sampling.stopping(run.queries)
        trained = json.loads(((run.network or run).folder / "training.json").read_text())
        weights = json.loads(((run.network or run).folder / "model.json").read_text())["sha256"]
        assert config["n"] == run.sampling.n
        assert config["alpha"] == run.sampling.alpha == 0.001
        assert config["noise"] == noise
        assert config["model"]["files"]["model.safetensors"] == weights  # type: ignore[index,call-overload]
        asked = {} if stopping is None else stopping.to_config()
        assert {k: config.get("stopping", {}).get(k) for k in asked} == asked  # type: ignore[union-attr]
        if run.network is not None:
            continue
        recipe = run.training.recipe_for(pretrained=run.begin is not None)
        assert trained["recipe"] == json.loads(json.dumps(recipe.to_config()))
        assert trained["noise"] == noise
        assert trained["data"]["hold_out"] == run.training.hold_out
        if run.begin is not None:
            before = json.loads((run.begin.folder / "model.json").read_text())["sha256"]
            assert trained["model"]["files"]["model.safetensors"] == before


def test_the_search_is_one_that_can_be_run() -> None:
    for path in (RESULTS / "mnist-fields.toml", *(RESULTS / "search").glob("*.toml")):
        assert read_sweep(Path(path)).runs


@cache
def imagenet(name: str) -> list[Result]:
    """The results of one of the ImageNet runs, read once."""
    return load_run(IMAGENET / name)


def imagenet_cell(results: list[Result], count: int) -> str:
    return f"| {percent_down(count, len(results))} % ({count} of {len(results):,}) |"


@pytest.mark.parametrize("name", RADII)
def test_the_table_of_imagenet_is_what_was_certified(name: str) -> None:
    results = imagenet(name)
    cell = imagenet_cell(results, count_certified(results, RADII[name]))
    assert cell in (IMAGENET / "README.md").read_text()


def test_every_angle_of_imagenet() -> None:
    results = imagenet("circle")
    text = (IMAGENET / "README.md").read_text()
    everywhere = imagenet_cell(results, count_certified(results, math.pi))
    assert f"| every angle {everywhere}" in text
    right = sum(result.plain == result.label for result in results)
    share = f"{percent_down(right, len(results))} % ({right:,})"
    assert re.sub(r"\s+", " ", text).count(share) == 1


def test_the_affine_radius_covers_the_region() -> None:
    region = Region.parse("rotation<=2deg, shear=0..2%")
    results = imagenet("affine")
    held = sum(r.correct and r.certificate.covers_region(region) for r in results)
    assert held == count_certified(results, RADII["affine"])


def test_the_reference_of_imagenet_is_the_papers() -> None:
    """paper.csv, for `deformrs report --reference`, against numbers.csv."""
    for number in read_reference(IMAGENET / "paper.csv"):
        table = family_table("imagenet", number.deformation)
        assert table is not None
        printed = {
            (f"{float(n.radius or 0):.10g}{UNITS[n.unit].suffix}", n.accuracy)
            for n in table.numbers
            if n.table == "headline" or n == table.best(n.radius or Fraction(0))
        }
        assert (number.radius, number.accuracy) in printed


def test_the_tables_that_help_to_choose_are_those_of_the_runs(board: Board) -> None:
    for name, lines in choosing.tables().items():
        assert "\n".join(["", *lines, ""]) in CHOOSING, name


def test_the_figures_are_there() -> None:
    shown = set(re.findall(r"\(images/(choosing-[\w-]+\.png)\)", CHOOSING))
    assert shown == set(choosing.FIGURES)
    assert all((ROOT / "docs" / "images" / name).is_file() for name in shown)


def test_other_radii_than_the_requested_ones_are_left_out() -> None:
    rows = choosing.scales(["affine-0.2", "affine-0.3"], (0.3, 0.5), "")
    assert rows[1][2] == "–", "not 0: sampling stopped once 0.3 was decided"
    assert float(rows[2][2].strip("*")) > 50
