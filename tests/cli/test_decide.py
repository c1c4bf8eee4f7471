"""`deformrs certify` with fewer samples: --radii, --region, --adaptive, --fixed, --compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, save_model
from deformrs.runs import load_run, read_config
from deformrs.stopping import GIVEN_UP, looks
from inside import inside, run_inside

CERTIFY = (
    *("certify", "--model", "net", "--data", "digits", "--max", "4", "--n0", "20"),
    *("--device", "cpu", "--precision", "float32"),
)
TURN = ("--deformation", "rotation", "--noise", "uniform:60deg")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(Path("net"), SmallCNN(width=4, seed=2).eval(), Preparation(channels=1))


def numbers(folder: str) -> list[int]:
    return [result.certificate.counts.n for result in load_run(Path(folder))]


def test_radii_are_settled_with_fewer_samples() -> None:
    shown = run_inside(*CERTIFY, *TURN, "--n", "3000", "--radii", "1deg,20deg", "--out", "run")
    config = read_config(Path("run"))
    assert config["method"] == "anytime:3000"
    asked = {"radii": ["1deg", "20deg"], "regions": [], "tolerance": None}
    assert config["stopping"] == asked | {"given_up": GIVEN_UP}
    found = numbers("run")
    assert set(found) <= set(looks(3000))
    assert min(found) < 3000
    assert "on average)" in shown
    again = run_inside(*CERTIFY, *TURN, "--n", "3000", "--radii", "1deg,20deg", "--out", "run")
    assert "samples/s" not in again, "all of it was there"


def test_a_run_goes_on_to_the_same_bytes() -> None:
    for folder, stops in (("whole", ("4",)), ("parts", ("1", "3", "4"))):
        for stop in stops:
            run_inside(
                *CERTIFY, *TURN, "--n", "800", "--radii", "5deg", "--max", stop, "--out", folder
            )
    whole, parts = (Path(name, "certificates.jsonl").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_other_radii_are_another_run() -> None:
    run_inside(*CERTIFY, *TURN, "--n", "100", "--radii", "5deg", "--out", "run")
    for other in (("--radii", "6deg"), ("--radii", "5deg", "--fixed"), ("--adaptive", "5deg")):
        _, error = inside(*CERTIFY, *TURN, "--n", "100", *other, "--out", "run", code=1)
        assert "cannot go on with other settings" in error


def test_the_protocol_of_the_paper_stays_the_default() -> None:
    run_inside(*CERTIFY, *TURN, "--n", "90", "--out", "plain")
    run_inside(*CERTIFY, *TURN, "--n", "90", "--radii", "5deg", "--fixed", "--out", "fixed")
    assert numbers("plain") == numbers("fixed") == [90] * 4
    plain, fixed = (Path(name, "certificates.jsonl").read_bytes() for name in ("plain", "fixed"))
    assert plain == fixed
    assert "stopping" not in read_config(Path("plain"))
    assert read_config(Path("plain"))["method"] == "clopper_pearson"


def test_adaptive_and_regions() -> None:
    run_inside(*CERTIFY, *TURN, "--n", "4000", "--adaptive", "30deg", "--out", "rough")
    assert max(numbers("rough")) < 4000
    both = ("--deformation", "rotation+scaling", "--noise", "uniform:60deg+uniform:30%")
    region = "rotation<=2deg, scale=0.99..1.01"
    run_inside(*CERTIFY, *both, "--n", "2000", "--region", region, "--out", "both")
    assert read_config(Path("both"))["stopping"]["regions"] == [region]  # type: ignore[index,call-overload]
    assert min(numbers("both")) < 2000
    run_inside("report", "both", "--out", "page")
    assert "rotation<=2deg" in Path("page", "report.md").read_text().replace("\\", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--radii", "5deg", "--method", "clopper_pearson"), "must be 'anytime:"),
        (("--adaptive", "0deg"), "must be positive"),
        (("--adaptive", "5px"), "5px"),
        (("--adaptive", "1deg", "--fixed"), "cannot be had with a fixed number of samples"),
        (("--radii", "-5deg"), "must not be negative"),
        (("--radii", "5"), "must be a number with its unit"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_sampled(
    options: tuple[str, ...], said: str
) -> None:
    _, error = inside(*CERTIFY, *TURN, "--n", "100", *options, "--out", "run", code=1)
    assert said in error
    assert not Path("run", "certificates.jsonl").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it first compiles
def test_compiled_is_written_down_and_counts_the_same() -> None:
    run_inside(*CERTIFY, *TURN, "--n", "90", "--out", "plain")
    shown = run_inside(*CERTIFY, *TURN, "--n", "90", "--compile", "default", "--out", "quick")
    assert "compiled in " in shown
    assert read_config(Path("quick"))["compiled"] == "default"
    plain, quick = (
        [result.certificate.counts for result in load_run(Path(name))]
        for name in ("plain", "quick")
    )
    assert plain == quick


def test_what_was_not_asked_is_not_shown_as_if_it_were() -> None:
    shown = run_inside(*CERTIFY, *TURN, "--n", "900", "--radii", "5deg,7deg", "--out", "run")
    assert "average certified radius" not in shown
    run_inside("report", "run", "--out", "page")
    page = Path("page", "report.md").read_text()
    assert "| run | noise | 5° | 7° | average radius |" in page
    assert "only what was asked was settled: more samples would give more" in page
    run_inside("report", "run", "--radii", "5deg,6deg", "--out", "page")
    (line,) = [
        line for line in Path("page", "report.md").read_text().splitlines() if "| run " in line
    ][1:2]
    assert "not asked" in line


def test_the_report_says_until_when_and_refuses_other_bounds() -> None:
    run_inside(
        *(*CERTIFY, *TURN, "--n", "900", "--radii", "5deg", "--adaptive", "20deg", "--out", "run")
    )
    run_inside("report", "run", "--out", "page")
    page = Path("page", "report.md").read_text()
    assert "until settled: 5deg and until less than 20deg is to gain" in page
    assert "Sampling stopped early (run)" in page
    run_inside("report", "run", "--alpha", "0.01", "--out", "page")
    _, error = inside("report", "run", "--method", "clopper_pearson", "--out", "page", code=1)
    assert "or 'anytime' for a run whose sampling stopped early" in error
    with pytest.raises(InputError, match="must be 'anytime:900' or 'anytime' for a run"):
        load_run(Path("run"), method="anytime:50")
