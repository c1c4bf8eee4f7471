"""What a reader sees of samples: claims, marks, colours, notes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from exhibits import QUICK, claimed, drawn, photograph, smooth, smooth_coin, spot, words

from deformrs import Rotation, Uniform
from deformrs.cli.gallery import Subject, exhibit
from deformrs.errors import InputError
from deformrs.report.gallery.samples import Verdict, draw_rows, draw_samples


def test_a_row_for_every_image_with_predictions_beneath(tmp_path: Path) -> None:
    classifier = smooth(Rotation(), Uniform(0.5))
    subjects = [Subject(spot(), 0, "first.png"), Subject(spot(40, 20), 1, "second.png")]
    rows = exhibit(classifier, subjects, QUICK)
    names = ["left", "American Staffordshire terrier, Staffordshire terrier"]
    draw_samples(rows, tmp_path / "g.svg", names=names)
    lines = words(tmp_path / "g.svg")
    assert [line for line in lines if line.endswith(".png")] == ["first.png", "second.png"]
    assert lines.count("original") == 2
    assert len([line for line in lines if line.startswith("✓ American")]) == 10
    claims = [line for line in lines if " for any rotation up to " in line]
    assert len(claims) == 2
    for row, claim in zip(rows, claims, strict=True):
        assert row.exhibit.certificate.claim.removeprefix("class 1") in claim
    assert "Of 8 samples 8 are as certified, 0 abstain, 0 differ." in " ".join(lines)


def test_what_stands_beneath_a_sample_never_passes_the_radius(tmp_path: Path) -> None:
    (row,) = exhibit(smooth(Rotation(), Uniform(0.7)), [Subject(spot())], QUICK)
    draw_samples([row], tmp_path / "g.svg")
    shown = [re.fullmatch(r"[+−]([\d.]+)°", line) for line in words(tmp_path / "g.svg")]
    degrees = [float(match[1]) for match in shown if match]
    assert len(degrees) == 4
    assert max(degrees) <= np.degrees(row.exhibit.certificate.radius) < max(degrees) + 0.1


def test_a_prediction_that_contradicts_the_certificate_is_shown(tmp_path: Path) -> None:
    false = claimed(Rotation(), Uniform(0.5), (500, 0))  # says 0 where the classifier says 1
    rows = exhibit(smooth(Rotation(), Uniform(0.5)), [Subject(spot(), certificate=false)], QUICK)
    assert [rows[0].verdict(sample) for sample in rows[0].samples] == [Verdict.DIFFERS] * 4
    draw_samples(rows, tmp_path / "g.svg", names=["$\\frac{$", "right"])
    lines = words(tmp_path / "g.svg")
    assert lines.count("✗ right") == 5
    assert any(line.startswith("$\\frac{$ for any rotation") for line in lines)
    assert "4 differ. Where one differs" in " ".join(lines)


def test_a_prediction_that_abstains_is_marked(tmp_path: Path) -> None:
    known = claimed(Rotation(), Uniform(0.5), (0, 500))
    subject = Subject(photograph(), certificate=known)
    (row,) = exhibit(smooth_coin(Rotation(), Uniform(0.5)), [subject], QUICK)
    assert {row.verdict(sample) for sample in row.samples} == {Verdict.ABSTAINS}
    draw_samples([row], tmp_path / "g.svg")
    lines = words(tmp_path / "g.svg")
    assert lines.count("– abstains") == 5
    assert "0 are as certified, 4 abstain, 0 differ" in " ".join(lines)


def test_marks_have_their_colours(tmp_path: Path) -> None:
    for name, hits in (("same", (0, 500)), ("differs", (500, 0))):
        known = claimed(Rotation(), Uniform(0.5), hits)
        subject = Subject(spot(), certificate=known)
        draw_samples(
            exhibit(smooth(Rotation(), Uniform(0.5)), [subject], QUICK), tmp_path / f"{name}.png"
        )
    green, red = (26, 127, 55), (207, 34, 46)
    for name, there, missing in (("same", green, red), ("differs", red, green)):
        pixels = drawn(tmp_path / f"{name}.png")
        assert (pixels == there).all(axis=-1).sum() > 1000
        assert not (pixels == missing).all(axis=-1).any()


def test_an_abstaining_certificate_leaves_a_note(tmp_path: Path) -> None:
    unsure = claimed(Rotation(), Uniform(0.5), (250, 250))
    subjects = [Subject(spot(), certificate=unsure, title="unsure"), Subject(spot(), title="sure")]
    rows = exhibit(smooth(Rotation(), Uniform(0.5)), subjects, QUICK)
    assert [len(row.samples) for row in rows] == [0, 4]
    draw_samples(rows, tmp_path / "g.svg")
    lines = words(tmp_path / "g.svg")
    assert "abstains: no class is certain enough" in lines
    assert "class 1" in lines  # said of the image itself, with nothing to agree with
    with pytest.raises(InputError, match="certificates all abstain"):
        draw_samples(rows[:1], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    draw_rows(rows[:1], tmp_path / "one.svg")
    assert "abstains: no class is certain enough" in words(tmp_path / "one.svg")
