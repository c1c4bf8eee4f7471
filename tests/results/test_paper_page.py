"""The results page: the files, the table of runs, and runs that are refused."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from paper_runs import DEGREE, both_routes, compare, rows, run, table_rows, turns

from deformrs import DCT, Affine, Rotation, Shear, Translation, Uniform, VectorField
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.runs import Run, StoredRun, read_run
from made_runs import Entry, results, stored
from make import main, read_note
from paper.numbers import NUMBERS, OTHER_THREAT_MODELS, THREAT_MODEL
from paper.page import write_results

TURN = Uniform(54 * DEGREE)
FIGURE = "figures/mnist-rotation.svg"


def decided(folder: Path, about: Config) -> Path:
    """A run that stopped when its radii were decided, as the command line writes it."""
    config: Config = {
        "deformation": {"name": "rotation"},
        "n": 100_000,
        "stopping": {"radii": ["10deg"], "regions": [], "tolerance": None},
        "data": {"name": "mnist", "split": "test", "pictures": 10_000},
    }
    with Run.open(folder, TURN, 0.001, "anytime", config | about) as opened:
        for made in results([Entry(0, 0, 1000)] * 3, Rotation(), TURN, 10):
            counts, space = made.certificate.counts, made.certificate.space
            anew = TURN.certify(counts, space, 0.001, "anytime")
            opened.add(type(made)(made.index, made.label, anew, made.plain), seconds=1200.5)
    return folder


def test_radii_that_no_run_was_sampled_for_are_marked(tmp_path: Path) -> None:
    """Of a run for 10 degrees: 30 degrees may be below for want of samples, 10 degrees may not."""
    ten = read_run(decided(tmp_path / "ten", {}))
    wrong = [replace(result, label=1) for result in ten.results]
    below = replace(ten, results=wrong)
    page = compare([below])[1]
    assert "- MNIST, rotation, 10°: −98.37 points\n" in page
    for radius, lost in (("0°", "−98.86 points"), ("30°", "−96.85 points"), ("ACR", "−163.12°")):
        assert f"- MNIST, rotation, {radius}: {lost} (requested of no run)\n" in page
    differences = {row[0]: row[3] for row in table_rows(page, "Rotation on MNIST")}
    assert differences["10°"] == "−98.37 (below the paper)"
    assert differences["30°"] == "−96.85 (below the paper, requested of no run)"
    typed: Config = {"stopping": {"radii": [math.radians(30)], "regions": [], "tolerance": None}}
    both = [below, replace(below, config=below.config | typed, folder=tmp_path / "thirty")]
    page = compare(both)[1]
    assert "- MNIST, rotation, 30°: −96.85 points\n" in page
    assert "- MNIST, rotation, 45°: −95.48 points (requested of no run)\n" in page
    fixed = {key: value for key, value in below.config.items() if key != "stopping"}
    _, page = compare([replace(below, config=fixed)])
    assert "requested of no run" not in page, "all n samples are for every radius"


def test_the_figure_ends_where_no_larger_radius_was_requested(tmp_path: Path) -> None:
    ten = read_run(decided(tmp_path / "ten", {}))
    files = write_results([ten], tmp_path / "decided")
    assert "uniform 54°, not requested beyond 10° -->" in files[FIGURE].read_text()
    assert "what lies beyond is not 0 but unknown" in files["README.md"].read_text()
    fixed = {key: value for key, value in ten.config.items() if key != "stopping"}
    files = write_results([replace(ten, config=fixed)], tmp_path / "fixed")
    assert "uniform 54° -->" in files[FIGURE].read_text()
    assert "what lies beyond" not in files["README.md"].read_text()


def test_the_program_writes_these_files_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns(tmp_path / "runs", on_disk=True), turns(tmp_path / "runs", "cifar10", on_disk=True)
    out = tmp_path / "out"
    main([str(tmp_path / "runs" / name) for name in ("mnist", "cifar10")] + ["--out", str(out)])
    names = {
        "README.md",
        "summary.csv",
        "figures/mnist-rotation.svg",
        "figures/cifar10-rotation.svg",
    }
    printed = capsys.readouterr().out.splitlines()
    assert printed[3].startswith("4/4 ")
    assert set(printed[4:]) == {str(out / name) for name in names}
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == names
    page = (out / "README.md").read_text()
    assert page.startswith("# Our results and the paper's\n")
    assert page.endswith(f"\n## How the settings were chosen\n\n{read_note()}")
    assert "](figures/cifar10-rotation.svg)" in page
    assert (out / "figures/mnist-rotation.svg").read_text().startswith("<?xml")
    assert len(rows((out / "summary.csv").read_text())) == 12 + 11


@pytest.mark.parametrize("data", ["photos", "minst", "mnist (held out of training)", None])
def test_data_that_the_paper_does_not_have(data: str | None, tmp_path: Path) -> None:
    made = stored(tmp_path / "one", [Entry(0, 0, 1000)], data=data)
    with pytest.raises(InputError, match=r"must be what the paper has numbers for.*mnist, cifar10"):
        compare([made])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_images_that_are_not_of_the_test_set(split: str, tmp_path: Path) -> None:
    made = stored(tmp_path / "one", [Entry(0, 0, 1000)], data="mnist")
    config = made.config | {"data": {"name": "mnist", "split": split}}
    with pytest.raises(InputError, match=f"split {split}"):
        compare([StoredRun(made.folder, config, made.results)])


def test_no_run_twice_none_empty_and_at_least_one(tmp_path: Path) -> None:
    made = run(tmp_path / "one", 3, Rotation(), TURN)
    with pytest.raises(InputError, match="twice"):
        compare([made, made])
    with pytest.raises(InputError, match="at least one image"):
        compare([StoredRun(made.folder, made.config, [])])
    with pytest.raises(InputError, match="the runs is none"):
        compare([])


def test_how_a_run_was_made(tmp_path: Path) -> None:
    about: Config = {"device": "cuda (H200)", "model": {"precision": "bfloat16"}}
    folder = decided(tmp_path / "mnist" / "a|b", about)
    lines = [json.dumps({"epoch": epoch, "seconds": 60.5}) for epoch in (1, 2)]
    (folder / "epochs.jsonl").write_text("\n".join(lines) + "\n")
    _, page = compare([read_run(folder)])
    (row,) = table_rows(page.replace("a\\|b", "a-b"), "The runs")
    assert row == [
        *("mnist/a-b", "rotation", "uniform 54°", "2", "0:02:01", "3 of 10,000", "up to 100,000"),
        *("0.001", "cuda (H200)", "bfloat16", "3,300 (1,100 per image)", "1:00:01", "100.00 %"),
    ]
    assert "Total of all runs: MNIST 1:02:02, of which training 0:02:01." in page
    assert "Sampled until decided: 10deg – mnist/a\\|b. " in page
    assert "it is a lower bound" in page
    assert "Chosen from runs over 3 of the 10,000 test images." in page


def test_weights_that_a_training_began_with(tmp_path: Path) -> None:
    made = run(tmp_path / "one", 3, Rotation(), TURN, on_disk=True)
    (made.folder / "epochs.jsonl").write_text('{"seconds": 5}\n')
    note = made.folder / "training.json"
    for options, files, shown in (
        ("runs/base", {"model.safetensors": "digest"}, "1 (from the weights of base)"),
        ("resnet18", {}, "1"),
    ):
        note.write_text(json.dumps({"options": {"model": options}, "model": {"files": files}}))
        page = compare([made])[1]
        assert table_rows(page, "The runs")[0][3] == shown


def test_times_that_were_lost_are_told(tmp_path: Path) -> None:
    made = run(tmp_path / "one", 3, Rotation(), TURN, on_disk=True)
    times = made.folder / "times.tsv"
    times.write_text("".join(times.read_text().splitlines(keepends=True)[:-1]) + "39\t0.2")
    page = compare([made])[1]
    assert table_rows(page, "The runs")[0][11] == "0:00:09 (of 39 images)"


def test_what_a_folder_does_not_tell_is_a_dash(tmp_path: Path) -> None:
    made = stored(tmp_path / "gone", [Entry(0, 0, 1000, plain=None)], law=TURN, data="mnist")
    page = compare([made])[1]
    (row,) = table_rows(page, "The runs")
    assert row[3:7] == ["–", "–", "1", "1,000"]
    assert row[8:] == ["–", "–", "1,100 (1,100 per image)", "–", "–"]
    assert "it is a lower bound" not in page


def test_runs_without_a_table_are_named(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "shear", 3, Shear(), Uniform(0.3)),
        run(tmp_path / "square", 3, Translation(), Uniform(0.3)),
        run(tmp_path / "waves", 3, DCT(3), Uniform(0.3)),
    ]
    found, page = compare(runs)
    assert "figures/" not in page
    assert found == {}
    assert "nothing is compared" in page
    assert "Not compared: mnist/shear: the paper has no table of this deformation." in page
    assert "Not compared: mnist/square: its radii are in the l1 norm" in page
    assert page.count("Not compared: ") == 3


def test_the_high_dimensional_tables_are_there_too(tmp_path: Path) -> None:
    from deformrs import Gaussian

    runs = [
        run(tmp_path / "waves", 30, DCT(2, basis="cosine"), Gaussian(0.2)),
        stored(
            tmp_path / "free", [Entry(0, 0, 1000)], VectorField(), Gaussian(0.1), data="mnist",
            size=(14, 14),
        ),
    ]  # fmt: skip
    files = write_results(runs, tmp_path / "out")
    assert {"figures/mnist-dct.svg", "figures/mnist-vector_field.svg"} < set(files)
    found = rows(files["summary.csv"].read_text())
    assert found["mnist", "dct", "0.1"]["ours"] == "75.00"
    assert "a pixel has a different length" in files["README.md"].read_text()


def test_runs_are_taken_one_after_another(tmp_path: Path) -> None:
    """An iterator is never advanced before the last run was counted."""
    folders = [made.folder for made in turns(tmp_path, on_disk=True)]

    def one_by_one() -> Iterator[StoredRun]:
        for folder in folders:
            made = read_run(folder)
            yield made
            made.results.clear()  # nobody needs them any more

    assert compare(one_by_one())[0]["mnist", "rotation", "10"]["ours"] == "75.00"


def test_an_affine_run_of_the_other_norm_still_answers_for_regions(tmp_path: Path) -> None:
    made = run(tmp_path / "cube", 30, Affine(), Uniform(2.0), "cifar10")
    found, page = compare([made])
    assert {deformation.partition(", ")[0] for _, deformation, _ in found} == {
        "rotation+shear",
        "rotation+scaling+translation",
    }
    assert "Not compared" not in page


def test_other_threat_models_and_the_average_carry_their_caveats(tmp_path: Path) -> None:
    """Below each table that names LI, BAL or FBV, and nowhere else; the names are the file's."""
    page = compare(turns(tmp_path))[1]
    headline = page.partition("### MNIST: the headline table")[2].partition("\n#")[0]
    assert "LI 95.60 %" in headline
    assert headline.count(THREAT_MODEL) == page.count(THREAT_MODEL) == 1
    sheared = compare(both_routes(tmp_path / "both"))[1]
    compositions = sheared.partition("### CIFAR-10: compositions")[2].partition("\n#")[0]
    assert "BAL 54.20 %" in compositions
    assert THREAT_MODEL in compositions
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        methods = {row["method"] for row in csv.DictReader(file)}
    assert methods == {"DeformRS", "MOH", *OTHER_THREAT_MODELS}
    assert "It rewards a constant classifier" in page


def test_how_many_certificates_may_be_false_is_said_once(tmp_path: Path) -> None:
    runs = turns(tmp_path)
    assert "Of each run by itself" not in compare(runs)[1], "their noise is not known"
    for one in runs:
        one.config.update({"device": "cuda (NVIDIA H200)"})
    sentence = "With 99.9 % confidence at most 1 of these 40 certificates is false."
    assert compare(runs)[1].count(f"Of each run by itself: {sentence}\n") == 1
