"""Sampling plans: what cannot be certified is refused before anything is sampled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deformrs import (
    Compose,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Rotation,
    Scaling,
    SmoothedClassifier,
    Stopping,
    Translation,
    Uniform,
    certify_dataset,
)
from deformrs.errors import InputError
from deformrs.plan import SamplingPlan

IMAGE = torch.zeros(1, 28, 28)


def never(images: Tensor) -> Tensor:
    raise AssertionError("nothing may be sampled")


def check(plan: SamplingPlan, deformation: Deformation, law: NoiseLaw) -> None:
    plan.check_attainable(law, deformation.space((28, 28)), 10)


@pytest.mark.parametrize("method", ["auto", "clopper_pearson", "bonferroni", "anytime"])
@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-9])
def test_n_is_enough_to_certify_something_if_all_samples_agree(method: str, alpha: float) -> None:
    with pytest.raises(InputError, match="n is 1; it must be at least") as caught:
        check(SamplingPlan(1, 10, alpha, 0, method), Rotation(), Uniform(0.5))
    (least,) = re.findall(r"at least (\d+) to certify", str(caught.value))
    check(SamplingPlan(int(least), 10, alpha, 0, method), Rotation(), Uniform(0.5))
    with pytest.raises(InputError, match=f"at least {least} to certify anything"):
        check(SamplingPlan(int(least) - 1, 10, alpha, 0, method), Rotation(), Uniform(0.5))


def test_the_least_n_of_the_papers_bound() -> None:
    """0.001^(1/9) = 0.464 and 0.001^(1/10) = 0.501: ten samples are enough, nine are not."""
    with pytest.raises(InputError, match=r"n is 5; it must be at least 10 to certify anything at"):
        check(SamplingPlan(5, method="clopper_pearson"), Rotation(), Uniform(0.5))


@pytest.mark.parametrize(
    ("deformation", "law", "stopping", "words"),
    [
        (
            Rotation(),
            Uniform("30deg"),
            Stopping(radii=("10deg", "60deg")),
            "the radius is 60deg; it cannot be certified by uniform noise of scale 30° with "
            "n = 1,000, even if all samples agree: at most 29.53°; use more noise",
        ),
        (Rotation(), Uniform("30deg"), Stopping(radii=(0.6,)), "the radius is 0.6; it cannot"),
        (Translation(), Gaussian("1px"), Stopping(radii=("5px",)), "at most 2.42 px;"),
        (
            Translation(),
            Gaussian("1px"),
            Stopping(regions=("shift<=1px", "shift<=5px")),
            "the region is shift<=5px; it cannot be certified by gaussian noise of scale 1 px",
        ),
        (
            Compose(Rotation(), Scaling()),
            Independent(Uniform("30deg"), Uniform("10%")),
            Stopping(regions=("rotation<=20deg, zoom<=9%",)),
            "the region is rotation<=20deg, zoom<=9%; it cannot be certified",
        ),
        (
            Rotation(),
            Uniform("30deg"),
            Stopping(tolerance="30deg"),
            "the tolerance is 30deg; it must be below the largest radius that uniform noise",
        ),
    ],
)
def test_queries_beyond_the_noise_are_refused(
    deformation: Deformation,
    law: NoiseLaw,
    stopping: Stopping,
    words: str,
    tmp_path: Path,
) -> None:
    plan = SamplingPlan(1000, stopping=stopping)
    with pytest.raises(InputError, match=re.escape(words)):
        check(plan, deformation, law)
    g = SmoothedClassifier(never, deformation, law, 10)
    with pytest.raises(InputError, match=re.escape(words)):
        g.certify(IMAGE, n=1000, stopping=stopping)
    with pytest.raises(InputError, match=re.escape(words)):
        g.certify_batch([IMAGE], [0], plan)
    with pytest.raises(InputError, match=re.escape(words)):
        list(certify_dataset(g, [(IMAGE, 0)], n=1000, stopping=stopping, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_queries_within_the_noise_are_accepted() -> None:
    full, half = Stopping(radii=("180deg",)), Stopping(radii=("0deg", "29deg"), tolerance="1deg")
    check(SamplingPlan(1000, stopping=full), Rotation(), Uniform("180deg"))
    check(SamplingPlan(1000, stopping=half), Rotation(), Uniform("30deg"))


def test_a_finished_run_is_read_whatever_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(images: Tensor) -> Tensor:
        return torch.eye(10)[torch.zeros(len(images), dtype=torch.long)]

    def classifier() -> SmoothedClassifier:
        return SmoothedClassifier(first, Rotation(), Uniform(0.5), 10)

    images = [(IMAGE, 0)] * 3
    with monkeypatch.context() as earlier:
        earlier.setattr(SamplingPlan, "check_attainable", lambda *_: None)
        made = list(certify_dataset(classifier(), images, n=5, max=2, out=tmp_path))
    assert list(certify_dataset(classifier(), images, n=5, max=2, out=tmp_path)) == made
    with pytest.raises(InputError, match="n is 5; it must be at least 11"):
        list(certify_dataset(classifier(), images, n=5, out=tmp_path))


@pytest.mark.parametrize("n", [10**13, 10**20])
def test_too_many_samples_are_reported_as_n(n: int) -> None:
    for stopping in (None, Stopping(tolerance=1)):
        with pytest.raises(InputError, match=r"n is 100?,000,.*must be at most 1,000,000,000"):
            SamplingPlan(n, stopping=stopping)
    with pytest.raises(InputError, match="n0 is .*must be at most"):
        SamplingPlan(100, n0=10**10)


@pytest.mark.parametrize("sizes", [(32, 8), (8, 32)])
def test_a_radius_that_only_large_images_reach_is_no_error(
    sizes: tuple[int, int],
) -> None:
    """Noise of a quarter of half the side is 4 px on one image, and 1 px on the other."""

    def bright(images: Tensor) -> Tensor:
        return torch.stack([images.mean((1, 2, 3)), 0.1 - images.mean((1, 2, 3))], 1)

    images = [(torch.ones(1, size, size), 0) for size in sizes]
    g = SmoothedClassifier(bright, Translation(), Uniform(0.25))
    stopping = Stopping(radii=("2px",))
    made = list(certify_dataset(g, images, n=1000, stopping=stopping))
    reached = {r.certificate.space.size[0]: r.certificate.radius_in("px") >= 2 for r in made}
    assert reached == {32: True, 8: False}
    small = SmoothedClassifier(bright, Translation(), Uniform(0.25))
    with pytest.raises(InputError, match="at most 0.98 px"):
        list(
            certify_dataset(
                small,
                [image for image in images if image[0].shape[1] == 8],
                n=1000,
                stopping=stopping,
            )
        )
