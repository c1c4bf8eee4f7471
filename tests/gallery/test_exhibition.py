"""Samples from certified sets with their predictions, from the classifier to the drawn file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from exhibits import QUICK, claimed, drawn, photograph, smooth, smooth_coin, spot, words

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
from deformrs.cli.gallery import Sampling, Subject, exhibit
from deformrs.errors import InputError
from deformrs.geometry import size_of
from deformrs.report.gallery import Exhibit, draw_gallery
from deformrs.report.gallery.samples import draw_samples

PAIRS: list[tuple[Deformation, NoiseLaw]] = [
    (Rotation(), Uniform(1.0)),
    (Translation(), Gaussian((0.05, 0.2))),
    (Affine(), Gaussian(0.1)),
    (DCT(), Gaussian(0.1)),
    (VectorField(), Gaussian(0.1)),
    (Compose(Rotation(), Translation()), Independent(Uniform(0.5), Gaussian(0.1))),
]


@pytest.mark.parametrize(("deformation", "law"), PAIRS)
def test_samples_are_covered_and_predicted_as_the_classifier_does(
    deformation: Deformation, law: NoiseLaw, tmp_path: Path
) -> None:
    classifier, image = smooth(deformation, law), spot()
    sampling = replace(QUICK, seed=3)
    (row,) = exhibit(classifier, [Subject(image, index=5)], sampling)
    certificate = row.exhibit.certificate
    assert certificate == classifier.certify(image, 200, 20, 1e-3, 3, index=5)
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
    draw_samples([row], tmp_path / "g.svg")
    assert words(tmp_path / "g.svg").count("✓ class 1") == 5


def test_predictions_use_the_noise_of_their_image_and_seed() -> None:
    """A coin thrown three times, believed at once: other noise, other answers."""
    classifier = smooth_coin(Rotation(), Uniform(0.5))
    known = claimed(Rotation(), Uniform(0.5), (0, 500))
    answers = []
    for index, seed in ((0, 0), (1, 0), (0, 1)):
        sampling = replace(QUICK, columns=20, predict_n=3, alpha=0.5, seed=seed)
        subject = Subject(photograph(), index, certificate=known)
        (row,) = exhibit(classifier, [subject], sampling)
        answers.append([sample.prediction for sample in row.samples])
        assert answers[-1] == [
            classifier.predict(subject.image, 3, 0.5, seed, index=index, shift=list(sample.shift))
            for sample in row.samples
        ]
    assert answers[0] != answers[1]
    assert answers[0] != answers[2]


@pytest.mark.parametrize("sure", [True, False])
def test_progress_counts_every_sample_and_ends_at_the_total(sure: bool) -> None:
    seen: list[tuple[int, int]] = []
    maker = smooth if sure else smooth_coin
    subjects = [Subject(photograph()), Subject(photograph(seed=1))]
    exhibit(
        maker(Rotation(), Uniform(0.1)),
        subjects,
        QUICK,
        report=lambda done, total: seen.append((done, total)),
    )
    total = 2 * (200 + 20 + 5 * 40)
    assert seen[-1] == (total, total)
    assert {of for _, of in seen} == {total}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_known_certificates_are_not_sampled_again() -> None:
    calls = 0

    def counting(images: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += len(images)
        return torch.eye(2)[1].expand(len(images), 2)

    classifier = SmoothedClassifier(counting, Rotation(), Uniform(0.5), 2)
    known = claimed(Rotation(), Uniform(0.5), (0, 500))
    (row,) = exhibit(classifier, [Subject(spot(), certificate=known)], QUICK)
    assert calls == 5 * 40
    assert row.exhibit.certificate is known


def test_a_certificate_of_something_else_is_refused() -> None:
    known = claimed(Rotation(), Uniform(0.5), (0, 500))
    for classifier, message in (
        (smooth(Scaling(), Uniform(0.5)), r"Scaling.*must be the one certified"),
        (smooth(Rotation(), Uniform(0.6)), r"Uniform\(scale=0.6\); it must be the certificate's"),
        (
            SmoothedClassifier(lambda p: p[:, 0, 0, :3], Rotation(), Uniform(0.5), 3),
            "num_classes is 3; it must be the certificate's, 2",
        ),
    ):
        with pytest.raises(InputError, match=message):
            exhibit(classifier, [Subject(spot(), certificate=known)], QUICK)
    with pytest.raises(InputError, match="must be the one certified"):
        exhibit(smooth(Rotation(), Uniform(0.5)), [Subject(spot(9, 9), certificate=known)], QUICK)
    with pytest.raises(InputError, match="must be the one certified"):
        draw_gallery([Exhibit(spot(), known)], Scaling(), Path("never.png"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"columns": 0}, "columns is 0"),
        ({"predict_n": 0}, "predict_n is 0"),
        ({"n": 2.5}, "n is 2.5"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"method": "guess"}, "guess"),
    ],
)
def test_bad_settings_are_named(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_bad_images_are_named() -> None:
    classifier = smooth(Rotation(), Uniform(0.5))
    with pytest.raises(InputError, match="the number of images is 0"):
        exhibit(classifier, [], QUICK)
    with pytest.raises(InputError, match="the image is of shape"):
        exhibit(classifier, [Subject(spot()[0])], QUICK)
    with pytest.raises(InputError, match="must lie in"):
        exhibit(classifier, [Subject(255 * spot())], QUICK)
    with pytest.raises(InputError, match="index is -1"):
        exhibit(classifier, [Subject(spot(), index=-1)], QUICK)


def test_equal_seeds_draw_equal_files_and_touch_no_global_state(tmp_path: Path) -> None:
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    for name in ("a", "b", "c"):
        sampling = replace(QUICK, seed=1 if name == "c" else 0)
        rows = exhibit(smooth(Affine(), Gaussian(0.1)), [Subject(spot())], sampling)
        for kind in ("png", "svg"):
            draw_samples(rows, tmp_path / f"{name}.{kind}")
    for kind in ("png", "svg"):
        first, second, other = ((tmp_path / f"{name}.{kind}").read_bytes() for name in "abc")
        assert first == second != other
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())  # noqa: NPY002


def test_vector_fields_of_photographs_fit_into_memory_and_time(tmp_path: Path) -> None:
    """100,352 parameters."""
    classifier = smooth(VectorField(), Gaussian(0.1))
    sampling = Sampling(columns=2, n=100, n0=10, predict_n=20)
    image = spot(224, 224).expand(3, -1, -1)
    (row,) = exhibit(classifier, [Subject(image)], sampling)
    assert row.samples[0].shift.shape == (100_352,)
    assert all(row.exhibit.certificate.covers(sample.shift) for sample in row.samples)
    draw_samples([row], tmp_path / "g.png")
    assert drawn(tmp_path / "g.png").shape[0] > 224
