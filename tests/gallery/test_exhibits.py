"""Images under certified deformations, from the classifier to the drawn file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import claimed, drawn, photograph, sampled, smooth, smooth_coin, spot, words

from deformrs import (
    DCT,
    Affine,
    Compose,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    Scaling,
    SmoothedClassifier,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.errors import InputError
from deformrs.geometry import size_of
from deformrs.report.gallery import (
    Exhibit,
    Verdict,
    certified_shifts,
    deform_exhibit,
    draw_samples,
    sample_exhibit,
)
from deformrs.sampling import Progress

PAIRS: list[tuple[Deformation, NoiseLaw]] = [
    (Rotation(), Uniform(1.0)),
    (Translation(), Gaussian((0.05, 0.2))),
    (DCT(), Gaussian(0.1)),
    (VectorField(), Gaussian(0.1)),
    (Compose(Rotation(), Translation()), Independent(Uniform(0.5), Gaussian(0.1))),
]
KNOWN = claimed(Rotation(), Uniform(0.5), (0, 500))
UNSURE = claimed(Rotation(), Uniform(0.5), (250, 250))
FALSE = claimed(Rotation(), Uniform(0.5), (500, 0))
"""For class 0, where the classifier predicts 1."""


@pytest.mark.parametrize(("deformation", "law"), PAIRS)
def test_guarantee_gallery_shows_certified_shifts_only(
    deformation: Deformation, law: NoiseLaw
) -> None:
    certificate = claimed(deformation, law, (100, 900))
    shifts = certified_shifts(certificate, 9)
    assert shifts.shape == (9, certificate.space.dim)
    assert all(certificate.covers(shift) for shift in shifts)
    assert np.abs(shifts).max() > 0


@pytest.mark.parametrize(("deformation", "law"), PAIRS)
def test_samples_are_covered_and_predicted_as_the_classifier_does(
    deformation: Deformation, law: NoiseLaw
) -> None:
    classifier, image = smooth(deformation, law), spot()
    row = sampled(classifier, image, index=5, seed=3)
    certificate = row.exhibit.certificate
    assert len(row.samples) == 4
    assert not row.original.shift.any()
    torch.testing.assert_close(row.original.image, image)
    for sample in (row.original, *row.samples):
        assert certificate.covers(sample.shift)
        shift = sample.shift.tolist()
        assert sample.prediction == classifier.predict(image, 40, 1e-3, 3, index=5, shift=shift)
        params = torch.from_numpy(sample.shift)[None]
        torch.testing.assert_close(sample.image, deformation.apply(image, params)[0])
        field = deformation.field(params, size_of(image))[0] * 12  # half the shorter side
        assert sample.reach_px == pytest.approx(field.norm(dim=-1).max().item())


def test_predictions_use_the_noise_of_their_image_and_seed() -> None:
    """A coin thrown three times, believed at once: other noise, other predictions."""
    classifier = smooth_coin(Rotation(), Uniform(0.5))
    predictions = []
    for index, seed in ((0, 0), (1, 0), (0, 1)):
        exhibit = Exhibit(photograph(), KNOWN, index=index)
        row = sample_exhibit(classifier, exhibit, 20, n=3, alpha=0.5, seed=seed)
        predictions.append([sample.prediction for sample in row.samples])
    assert predictions[0] != predictions[1]
    assert predictions[0] != predictions[2]


def test_sampling_an_exhibit_certifies_nothing_again() -> None:
    calls = 0

    def counting(images: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += len(images)
        return torch.eye(2)[1].expand(len(images), 2)

    classifier = SmoothedClassifier(counting, Rotation(), Uniform(0.5), 2, check_model=False)
    sampled_counts: list[int] = []
    progress = Progress(sampled=sampled_counts.append)
    sample_exhibit(classifier, Exhibit(spot(), KNOWN), 4, n=40, progress=progress)
    assert calls == 5 * 40
    assert sampled_counts == [40] * 5


def test_guarantee_predict_shares_alpha_among_its_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the union bound a sample decides wrongly with probability at most alpha."""
    looked: list[tuple[int, float]] = []

    def predict(
        self: SmoothedClassifier, image: torch.Tensor, n: int, alpha: float, *_: int, **__: object
    ) -> int | None:
        looked.append((n, alpha))
        return 1 if n == decided_at else None

    monkeypatch.setattr(SmoothedClassifier, "predict", predict)
    classifier = smooth(Rotation(), Uniform(0.5))
    for decided_at, ends in ((0, [30, 120, 480, 2000]), (120, [30, 120])):
        looked.clear()
        row = sample_exhibit(classifier, Exhibit(spot(), UNSURE), 1, n=2000, alpha=0.01)
        assert [n for n, _ in looked] == ends
        assert {alpha for _, alpha in looked} == {0.01 / 4}
        assert row.original.prediction == (1 if decided_at else None)
    assert sample_exhibit(classifier, Exhibit(spot(), KNOWN), 1).n == 10_000
    many = claimed(Rotation(), Uniform(0.5), (0, 50_000))
    assert sample_exhibit(classifier, Exhibit(spot(), many), 1).n == 50_000


def test_a_certified_image_abstains_nowhere_that_its_certificate_is_clear() -> None:
    """Two thirds of the samples decide the certificate at n = 200, and would not at n = 100."""
    classifier = SmoothedClassifier(
        lambda images: torch.stack(
            [images.sum((1, 2, 3)) * 0 + 0.5, (images.sum((1, 2, 3)) * 1e4 % 3 >= 1).float()], 1
        ),
        Rotation(),
        Uniform(0.5),
        2,
    )
    certificate = classifier.certify(photograph(), 200, 50)
    assert certificate.prediction == 1
    row = sample_exhibit(classifier, Exhibit(photograph(), certificate), 8)
    assert {sample.prediction for sample in (row.original, *row.samples)} == {1}


def test_a_certificate_of_something_else_is_refused() -> None:
    exhibit = Exhibit(spot(), KNOWN)
    for classifier, message in (
        (smooth(Scaling(), Uniform(0.5)), r"Scaling.*must be the one certified"),
        (smooth(Rotation(), Uniform(0.6)), r"Uniform\(scale=0.6\); it must be the certificate's"),
        (
            SmoothedClassifier(lambda p: p[:, 0, 0, :3], Rotation(), Uniform(0.5), 3),
            "num_classes of the classifier is 3; it must be the certificate's, 2",
        ),
    ):
        with pytest.raises(InputError, match=message):
            sample_exhibit(classifier, exhibit, 4)
    with pytest.raises(InputError, match="must be the one certified"):
        deform_exhibit(exhibit, Scaling(), 4)
    with pytest.raises(InputError, match=r"of size \(9, 9\)"):
        Exhibit(spot(9, 9), KNOWN)


def test_bad_input_is_named(tmp_path: Path) -> None:
    for image, message in ((spot()[0], "is of shape"), (255 * spot(), "must lie in")):
        with pytest.raises(InputError, match=f"the image .*{message}"):
            Exhibit(image, KNOWN)
    with pytest.raises(InputError, match="index is -1"):
        Exhibit(spot(), KNOWN, index=-1)
    with pytest.raises(InputError, match="the number of deformations is 0"):
        sample_exhibit(smooth(Rotation(), Uniform(0.5)), Exhibit(spot(), KNOWN), 0)
    with pytest.raises(InputError, match="rows is 0"):
        draw_samples([], tmp_path / "g.png")
    with pytest.raises(InputError, match="abstaining"):
        certified_shifts(claimed(Rotation(), Uniform(0.5), (250, 250)), 4)


def test_equal_seeds_draw_equal_files_and_touch_no_global_state(tmp_path: Path) -> None:
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    for name in ("a", "b", "c"):
        row = sampled(smooth(Affine(), Gaussian(0.1)), spot(), seed=1 if name == "c" else 0)
        draw_samples([row], tmp_path / f"{name}.svg")
    first, second, other = ((tmp_path / f"{name}.svg").read_bytes() for name in "abc")
    assert first == second != other
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())  # noqa: NPY002


def test_pixels_beyond_the_edge_follow_the_padding(tmp_path: Path) -> None:
    exhibit = Exhibit(spot(), claimed(Translation(), Gaussian(0.5), (100, 900)))
    for padding in ("zeros", "reflection"):
        path = tmp_path / f"{padding}.png"
        draw_samples([deform_exhibit(exhibit, Translation(), 4, padding=padding)], path)
    assert (tmp_path / "zeros.png").read_bytes() != (tmp_path / "reflection.png").read_bytes()


def test_a_row_for_every_image_with_predictions_beneath(tmp_path: Path) -> None:
    classifier = smooth(Rotation(), Uniform(0.5))
    rows = [
        sampled(classifier, spot(), title="first.png"),
        sampled(classifier, spot(40, 20), title="second.png", index=1),
    ]
    names = ["left", "American Staffordshire terrier, Staffordshire terrier"]
    draw_samples(rows, tmp_path / "g.svg", names=names)
    lines = words(tmp_path / "g.svg")
    assert [line for line in lines if line.endswith(".png")] == ["first.png", "second.png"]
    assert lines.count("original") == 2
    assert len([line for line in lines if line.startswith("✓ American")]) == 10
    for row in rows:
        reach = row.exhibit.certificate.reach
        assert f"{names[1]}: holds for {reach}; uniform noise" in " ".join(lines)
    assert "Of 8 samples 8 are as certified, 0 abstain, 0 differ." in " ".join(lines)


def test_what_stands_beneath_a_sample_never_passes_the_radius(tmp_path: Path) -> None:
    row = sampled(smooth(Rotation(), Uniform(0.7)), spot())
    draw_samples([row], tmp_path / "g.svg")
    labels = [re.fullmatch(r"[+−]([\d.]+)°", line) for line in words(tmp_path / "g.svg")]
    degrees = [float(label[1]) for label in labels if label]
    assert len(degrees) == 4
    assert max(degrees) <= np.degrees(row.exhibit.certificate.radius) < max(degrees) + 0.1


def test_a_prediction_that_contradicts_the_certificate_is_shown(tmp_path: Path) -> None:
    row = sample_exhibit(smooth(Rotation(), Uniform(0.5)), Exhibit(spot(), FALSE), 4)
    assert [row.verdict(sample) for sample in row.samples] == [Verdict.DIFFERS] * 4
    draw_samples([row], tmp_path / "g.svg", names=["$\\frac{$", "right"])
    lines = words(tmp_path / "g.svg")
    assert lines.count("✗ right") == 5
    assert any(line.startswith("$\\frac{$: holds for any rotation") for line in lines)
    assert "4 differ. Where one differs" in " ".join(lines)


def test_a_prediction_that_abstains_is_marked(tmp_path: Path) -> None:
    coin = smooth_coin(Rotation(), Uniform(0.5))
    row = sample_exhibit(coin, Exhibit(photograph(), KNOWN), 4, n=200)
    assert {row.verdict(sample) for sample in row.samples} == {Verdict.ABSTAINS}
    draw_samples([row], tmp_path / "g.svg")
    lines = words(tmp_path / "g.svg")
    assert lines.count("– abstains") == 5
    assert "0 are as certified, 4 abstain, 0 differ" in " ".join(lines)


def test_marks_have_their_colours(tmp_path: Path) -> None:
    green, red = (26, 127, 55), (207, 34, 46)
    for certificate, present, missing in ((KNOWN, green, red), (FALSE, red, green)):
        row = sample_exhibit(smooth(Rotation(), Uniform(0.5)), Exhibit(spot(), certificate), 4)
        draw_samples([row], tmp_path / "g.png")
        pixels = drawn(tmp_path / "g.png")
        assert (pixels == present).all(axis=-1).sum() > 1000
        assert not (pixels == missing).all(axis=-1).any()


def test_an_abstaining_certificate_says_so(tmp_path: Path) -> None:
    row = sample_exhibit(smooth(Rotation(), Uniform(0.5)), Exhibit(spot(), UNSURE, "unsure"), 4)
    assert row.samples == ()
    draw_samples([row], tmp_path / "g.svg")
    lines = words(tmp_path / "g.svg")
    assert any(line.startswith("abstains: no class is certain enough") for line in lines)
    assert "class 1" in lines  # predicted for the image itself, with nothing to compare with


def test_vector_fields_of_photographs_are_sampled() -> None:
    """100,352 parameters."""
    classifier = smooth(VectorField(), Gaussian(0.1))
    image = spot(224, 224).expand(3, -1, -1)
    exhibit = Exhibit(image, classifier.certify(image, 20, 5))
    row = sample_exhibit(classifier, exhibit, 1, n=5)
    assert row.samples[0].shift.shape == (100_352,)
    assert all(exhibit.certificate.covers(sample.shift) for sample in row.samples)
