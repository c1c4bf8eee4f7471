"""The results page: which runs are compared, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_runs import DEGREE, IMAGES, rows, run, table_rows, turns

from deformrs import Affine, Gaussian, Rotation, Scaling, Translation, Uniform
from deformrs.runs import read_run
from paper.cells import short_names
from paper.page import write_results

TURN = Uniform(54 * DEGREE)


def test_a_run_at_a_looser_alpha_is_not_chosen(tmp_path: Path) -> None:
    better = run(tmp_path / "better", 39, Rotation(), TURN)
    loose = read_run(better.folder, alpha=0.4)
    files = write_results([*turns(tmp_path), loose], tmp_path / "out")
    found, page = rows(files["summary.csv"]), files["README.md"].read_text()
    assert found["mnist", "rotation", "0"]["ours"] == "75.00"
    assert {row["alpha"] for row in found.values()} == {"0.001"}
    assert "Not compared: better: alpha 0.4, the paper's is 0.001." in page
    assert "better: uniform" not in files["figures/mnist-rotation.svg"].read_text()
    strict = read_run(better.folder, alpha=0.0001)
    again = write_results([*turns(tmp_path / "b"), strict], tmp_path / "out")
    first = rows(again["summary.csv"])["mnist", "rotation", "0"]
    assert (first["ours"], first["alpha"]) == ("97.50", "0.0001")


def test_looser_runs_alone_reach_nothing(tmp_path: Path) -> None:
    folders = [
        run(tmp_path / "turn", 39, Rotation(), TURN, "cifar10").folder,
        run(tmp_path / "affine", 39, Affine(), Gaussian(0.3), "cifar10").folder,
    ]
    files = write_results([read_run(f, alpha=0.01) for f in folders], tmp_path / "out")
    page = files["README.md"].read_text()
    assert rows(files["summary.csv"]) == {}
    assert "nothing is compared. 20 tables of the paper have no run to compare" in page
    assert page.count("alpha 0.01, the paper's is 0.001.") == 2
    assert "CIFAR-10 rotation," in page.strip().splitlines()[-1]


def test_runs_of_different_alpha_are_no_twins(tmp_path: Path) -> None:
    few = run(tmp_path / "few", 10, Rotation(), TURN, total=10)
    for alpha, twins in ((0.001, True), (0.0001, False), (0.4, False)):
        runs = [read_run(few.folder, alpha=alpha), *turns(tmp_path / str(alpha))]
        page = write_results(runs, tmp_path / "out")["README.md"].read_text()
        assert ("The same classifiers certified twice" in page) == twins


def test_the_summary_tells_of_zeros_and_of_tables_without_a_run(tmp_path: Path) -> None:
    """All right at 70 %: the paper and ours both have nothing at 80 % and beyond."""
    made = run(tmp_path / "zoom", IMAGES, Scaling(), Uniform(0.7), "cifar10")
    files = write_results([made], tmp_path / "out")
    found = rows(files["summary.csv"]).values()
    zeros = sum(float(row["paper"]) == float(row["ours"]) == 0 for row in found)
    assert zeros > 0
    page = files["README.md"].read_text()
    assert f"cells of certified accuracy ({zeros} of them 0 against 0)" in page
    assert "19 tables of the paper have no run" in page


def test_the_summary_speaks_of_what_is_compared_and_counts_what_is_not(tmp_path: Path) -> None:
    made = run(tmp_path / "turn", IMAGES, Rotation(), Uniform(180 * DEGREE))
    page = write_results([made], tmp_path / "out")["README.md"].read_text()
    assert "10 of 10 cells" in page
    assert " None of these is below it. 19 tables of the paper have no run" in page
    runs = [
        run(tmp_path / data / name, IMAGES, deformation, law, data)
        for data in ("mnist", "cifar10")
        for name, deformation, law in (
            ("turn", Rotation(), Uniform(180 * DEGREE)),
            ("zoom", Scaling(), Uniform(1.0)),
            ("shift", Translation(), Gaussian(3.0)),
            ("affine", Affine(), Gaussian(2.0)),
        )
    ]
    page = write_results(runs, tmp_path / "all")["README.md"].read_text()
    assert " None of these is below it. 9 tables of the paper have no run to compare.**" in page
    last = page.strip().splitlines()[-1]
    assert last.endswith(
        "MNIST dct, MNIST vector field, CIFAR-10 dct, CIFAR-10 vector field, ImageNet rotation, "
        "ImageNet scaling, ImageNet translation, ImageNet affine, ImageNet rotation+shear."
    )


@pytest.mark.parametrize("end", ['{"epoch": 2, "sec', '{"seconds": 7}', "\x00", "{"])
def test_an_unfinished_line_of_the_training_log(end: str, tmp_path: Path) -> None:
    made = run(tmp_path / "one", 3, Rotation(), TURN)
    (made.folder / "epochs.jsonl").write_text('{"epoch": 1, "seconds": 5}\n' + end)
    page = write_results([made], tmp_path / "out")["README.md"].read_text()
    assert table_rows(page, "The runs")[0][3:5] == ["1", "0:00:05"]


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/home/me/a/x", "/home/me/a/y"], ["x", "y"]),
        (["/home/me/a/x"], ["x"]),
        (["/home/me/p/mnist/x", "/data/q/cifar10/y"], ["mnist/x", "cifar10/y"]),
        (["/home/me/a/best", "/home/me/b/best"], ["a/best", "b/best"]),
        (["/h/p/m/x/best", "/h/q/c/x/best", "/h/q/c/y"], ["m/x/best", "c/x/best", "c/y"]),
        (["/h/few", "/h/mnist/few"], ["few", "mnist/few"]),
        (["/h/m/x", "/h/m/x/best"], ["x", "x/best"]),
    ],
)
def test_names_are_no_longer_than_needed(folders: list[str], names: list[str]) -> None:
    assert short_names([Path(folder) for folder in folders]) == names
    assert short_names([Path(folder) for folder in reversed(folders)]) == names[::-1]


def test_legends_tell_the_best_epochs_of_two_trainings_apart(tmp_path: Path) -> None:
    runs = [run(tmp_path / name / "best", 30, Rotation(), TURN) for name in ("first", "second")]
    figure = write_results(runs, tmp_path / "out")["figures/mnist-rotation.svg"].read_text()
    assert "first/best: " in figure
    assert "second/best: " in figure
