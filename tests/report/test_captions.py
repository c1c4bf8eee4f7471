"""What a report says of all certificates of a run together."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom

from deformrs import Rotation, Uniform
from deformrs.config import Config
from deformrs.randomness import Philox, TorchGenerator
from deformrs.report.captions import set_words
from deformrs.report.document import write_report
from deformrs.report.summary import FAILURE, PHILOX, most_false_of
from deformrs.runs import CertifiedRun, StoredRun
from deformrs.runs.folder import TORCH
from deformrs.runs.request import Simultaneous
from deformrs.statistics import shared_alpha
from made_runs import ALPHA, Entry, Page, many, results, stored

ON_CPU: Config = {"generator": "philox", "device": "cpu", "n": 1000, "n0": 100}
ON_GPU: Config = {"device": "cuda (NVIDIA H200)", "n": 1000, "n0": 100}


def run_of(total: int, config: Config = ON_CPU, entries: Sequence[Entry] = ()) -> CertifiedRun:
    some = results([*entries] or [Entry(0, 0, 1000)] * total, Rotation(), Uniform(1.0), 10)
    return CertifiedRun(config | {"alpha": ALPHA}, some)


def requested(images: int) -> Config:
    return {"requested": {"images": images, "indices": f"0-{images - 1}", "check": ""}}


@pytest.mark.parametrize(
    ("total", "sentence"),
    [
        (1, "this certificate holds."),
        (20, "at most 1 of these 20 certificates is false."),
        (1000, "at most 5 of these 1,000 certificates are false."),
        (10_000, "at most 21 of these 10,000 certificates are false."),
    ],
)
def test_the_sentence_of_a_run(total: int, sentence: str) -> None:
    assert set_words(run_of(total)) == f"With 99.9 % confidence {sentence}"


def test_guarantee_most_false_of_and_set_words_count_all_requested_images() -> None:
    """Images on which it abstains, and those that are still to be certified, are among them."""
    abstaining = run_of(0, entries=[Entry(0, 0, 400)] * 990 + [Entry(0, 0, 1000)] * 10)
    assert sum(result.certificate.prediction is None for result in abstaining) == 990
    assert most_false_of(abstaining) == 5 == binom.ppf(1 - FAILURE, 1000, ALPHA)
    begun = run_of(1000, ON_CPU | requested(10_000))
    assert most_false_of(begun) == 21
    assert set_words(begun).endswith("at most 21 of these 1,000 certificates are false.")
    assert set_words(run_of(15, ON_CPU | requested(10_000))) == "", "it would say nothing"


def test_guarantee_most_false_of_allows_for_images_that_share_noise_on_a_gpu() -> None:
    assert most_false_of(run_of(10_000, ON_GPU)) == 21
    # At this number of samples, two of the images share noise with a probability above 0.001.
    assert most_false_of(run_of(10_000, ON_GPU | {"n": 10**9})) is None
    # In between the failure probability that is left is smaller, and the number no less.
    assert most_false_of(run_of(10_000, ON_GPU | {"n": 18 * 10**7})) == 25
    left = FAILURE - 1e8 * (18e7 + 103) / 2**64
    assert binom.ppf(1 - left, 10_000, ALPHA) == 25


@pytest.mark.parametrize(
    "config",
    [
        {"device": "cpu", "n": 1000, "n0": 100},  # of version 0.1.0: seeds of 32 bits
        {"device": "cuda (NVIDIA H200)"},
        {"generator": "another", "device": "cuda", "n": 1000, "n0": 100},
        {},
    ],
)
def test_noise_that_is_not_known_to_be_independent_gets_no_sentence(config: Config) -> None:
    assert set_words(run_of(1000, config)) == ""


def test_the_generators_have_their_names() -> None:
    assert (Philox.name, TorchGenerator.name) == (PHILOX, TORCH)


def sharing(run: CertifiedRun, images: int, total: float, level: float | None = None) -> str:
    """Return the sentence of the run as if that many images shared alpha, certified at a level."""
    own = shared_alpha(total, images)
    run.config |= Simultaneous(images, total).to_config() | {"alpha": own}
    run.results[:] = [
        replace(result, certificate=replace(result.certificate, alpha=level or own))
        for result in run.results
    ]
    return set_words(run)


def test_a_run_whose_images_share_alpha_holds_as_a_whole() -> None:
    run = run_of(100)
    assert sharing(run, 100, 0.001) == "With 99.9 % confidence all 100 certificates hold together."
    # More requested than certified: those that are certified hold together all the same.
    assert sharing(run, 150, 0.25) == "With 75 % confidence all 100 certificates hold together."
    # Certified anew by Python at an alpha of their own.
    assert sharing(run, 100, 0.25, 0.0001) == (
        "With 99 % confidence all 100 certificates hold together, if this alpha and bound were "
        "chosen before the results were seen."
    )
    assert sharing(run, 100, 0.25, 0.02) == (
        "With 99.9 % confidence at most 7 of these 100 certificates are false, if this alpha and "
        "bound were chosen before the results were seen."
    )


def test_confidence_is_rounded_down() -> None:
    run = run_of(3)
    level = shared_alpha(0.001, 3)
    assert 3 * Fraction(level) < Fraction(0.001)
    assert sharing(run, 3, 0.001) == "With 99.9 % confidence all 3 certificates hold together."
    words = sharing(run, 3, 0.001, 0.001 / 9)
    assert words.startswith("With 99.9666666 % confidence all 3 certificates hold together, if")


def with_noise(run: StoredRun) -> StoredRun:
    run.config.update(ON_CPU)
    return run


@pytest.mark.usefixtures("no_figures")
def test_page_markdown_and_table_have_it_once_for_each_run(tmp_path: Path) -> None:
    runs = [with_noise(stored(tmp_path / name, many(40))) for name in ("a", "b")]
    files = write_report(runs, tmp_path / "out")
    sentence = "With 99.9 % confidence at most 1 of these 40 certificates is false."
    page = Page(files["report.html"].read_text(encoding="utf-8"))
    assert page.shown.count(sentence) == 2
    text = files["report.md"].read_text(encoding="utf-8")
    assert text.count(sentence) == 2
    assert text.count("95 % interval: ") == 2
    rows = csv.DictReader(io.StringIO(files["tables/photos-rotation-runs.csv"].read_text()))
    assert [row["most_false"] for row in rows] == ["1", "1"]
    for words in ("counts among them", "It rewards a constant classifier"):
        assert words in text
        assert words in " ".join(page.shown)


@pytest.mark.usefixtures("no_figures")
def test_where_it_is_not_known_the_report_is_silent(tmp_path: Path) -> None:
    files = write_report([stored(tmp_path / "a")], tmp_path / "out")
    text = files["report.md"].read_text(encoding="utf-8")
    assert "99.9 %" not in text
    assert "counts among them" not in text
    rows = csv.DictReader(io.StringIO(files["tables/photos-rotation-runs.csv"].read_text()))
    assert [row["most_false"] for row in rows] == [""]


@pytest.mark.usefixtures("no_figures")
def test_shared_alpha_is_said_in_the_facts_and_not_called_one_of_each_image(
    tmp_path: Path,
) -> None:
    run = stored(tmp_path / "a", [Entry(0, 0, 1000)] * 4)
    run.config.update(ON_CPU | Simultaneous(4, 0.004).to_config())
    text = write_report([run], tmp_path / "out")["report.md"].read_text(encoding="utf-8")
    assert "With 99.6 % confidence all 4 certificates hold together." in text
    assert "0.001 (a share of each of 4 images)" in text
    assert "not for the whole set" not in text
