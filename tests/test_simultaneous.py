"""Images that share one alpha: their level, their run, and what must not be added to it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from deformrs import certify
from deformrs.config import Config, ConfigValue
from deformrs.dataset import certify_dataset
from deformrs.errors import InputError
from deformrs.models import SmallCNN
from deformrs.plan import SamplingPlan
from deformrs.runs import CONFIG, load_run, read_config, read_run
from deformrs.runs.folder import difference
from deformrs.runs.records import digest
from deformrs.runs.request import (
    SIMULTANEOUS,
    Simultaneous,
    check_simultaneous,
    simultaneous_of,
    with_request,
)
from deformrs.statistics import clopper_pearson_lower
from deformrs.stopping import Stopping
from deformrs.verification import plan_of, verify_counts
from examples import smoothed
from made_runs import resign

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(7)]
ALPHA, N, N0 = 0.004, 200, 20


def run_of(out: Path, most: int | None = 4, alpha: float = ALPHA, *, shared: bool = True) -> None:
    list(
        certify_dataset(
            smoothed(),
            IMAGES,
            n=N,
            n0=N0,
            alpha=alpha,
            seed=4,
            max=most,
            simultaneous=shared,
            out=out,
        )
    )


def test_a_run_that_does_not_say_for_which_images_it_shares_alpha_is_refused(
    tmp_path: Path,
) -> None:
    """Lines could be added to it without end."""
    run_of(tmp_path)
    resign(tmp_path)  # without the request
    with pytest.raises(InputError, match="requested must have images, indices and check"):
        read_run(tmp_path)


def test_every_image_has_its_share(tmp_path: Path) -> None:
    run_of(tmp_path)
    config = read_config(tmp_path)
    assert config["alpha"] == 0.001
    assert config[SIMULTANEOUS] == {"images": 4, "alpha": ALPHA}
    assert [result.certificate.alpha for result in load_run(tmp_path)] == [0.001] * 4
    alone = list(certify_dataset(smoothed(), IMAGES, n=N, n0=N0, alpha=0.001, seed=4, max=4))
    assert [r.certificate for r in load_run(tmp_path)] == [r.certificate for r in alone]
    verify_counts(smoothed(), IMAGES, read_run(tmp_path))
    assert plan_of(config) == SamplingPlan(N, N0, 0.001, 4, "auto")


@pytest.mark.parametrize("stopping", [None, Stopping(radii=("10deg",))])
def test_guarantee_shared_plan_and_certify_dataset_err_on_any_image_with_at_most_alpha(
    stopping: Stopping | None,
) -> None:
    """All images have p = 1/2 exactly, so that every certificate is false. Simulated by their
    counts: any of 50 images is certified in at most a share alpha of 20,000 sets."""
    plan = SamplingPlan(200, 20, 0.05, 0, "auto", stopping)
    shared = plan.shared(50)
    assert 50 * Fraction(shared.alpha) <= Fraction(0.05)
    assert (shared.n, shared.n0, shared.seed, shared.method) == (plan.n, plan.n0, 0, plan.method)
    needed = {
        level: next(k for k in range(201) if clopper_pearson_lower(k, 200, level) > 0.5)
        for level in (shared.alpha, plan.alpha)
    }
    hits = np.random.default_rng(0).binomial(200, 0.5, size=(20_000, 50)).max(axis=1)
    assert (hits >= needed[shared.alpha]).mean() <= 0.05
    assert (hits >= needed[plan.alpha]).mean() > 0.5, "with alpha for each, most sets err"


def test_an_interrupted_run_is_the_same_as_one_without_interruption(tmp_path: Path) -> None:
    run_of(tmp_path / "whole")
    results = certify_dataset(
        smoothed(),
        IMAGES,
        n=N,
        n0=N0,
        alpha=ALPHA,
        seed=4,
        max=4,
        simultaneous=True,
        out=tmp_path / "parts",
    )
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(load_run(tmp_path / "parts")) < 4
    run_of(tmp_path / "parts")
    for name in (CONFIG, "certificates.jsonl"):
        whole, parts = ((tmp_path / place / name).read_bytes() for place in ("whole", "parts"))
        assert whole == parts, name


@pytest.mark.parametrize(
    ("most", "alpha", "shared", "found"),
    [
        (5, ALPHA, True, "not one of 5 images that share alpha = 0.004"),
        (3, ALPHA, True, "not one of 3 images that share alpha = 0.004"),
        (None, ALPHA, True, "not one of 7 images that share alpha = 0.004"),
        (4, 0.002, True, "not one of 4 images that share alpha = 0.002"),
        (5, 0.001, False, "not one whose images have an alpha each"),
    ],
)
def test_other_images_are_refused(
    tmp_path: Path, most: int | None, alpha: float, shared: bool, found: str
) -> None:
    run_of(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="certify all of the images into another folder") as caught:
        run_of(tmp_path, most, alpha, shared=shared)
    assert "one of 4 images that share alpha = 0.004" in str(caught.value)
    assert found in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_with_an_alpha_for_each_image_is_not_made_a_shared_one(tmp_path: Path) -> None:
    run_of(tmp_path, alpha=0.001, shared=False)
    with pytest.raises(InputError, match="one whose images have an alpha each, not one of 4"):
        run_of(tmp_path)


def test_as_many_other_images_are_refused() -> None:
    """The same number, but others: those that are done would be added to them."""
    config = with_request({"alpha": 0.001, **Simultaneous(4, ALPHA).to_config()}, [], range(4))
    assert with_request(config, [0, 1], [0, 1, 2, 3])["requested"]
    with pytest.raises(InputError, match="6 with those of the run; it must stay at the 4"):
        with_request(config, [0, 1], [2, 3, 4, 5])


@pytest.mark.parametrize(
    "forged",
    [
        {"images": 3, "alpha": ALPHA},  # fewer than were requested
        {"images": 4, "alpha": 0.0039},  # less than four times the alpha of each
        {"images": 4, "alpha": 1.0},
        {"images": 4, "alpha": 1e999},
        {"images": -4, "alpha": ALPHA},
        {"images": 0, "alpha": ALPHA},
        {"images": 4.0, "alpha": ALPHA},
        {"images": 4},
        {"images": 4, "alpha": ALPHA, "more": 1},
        "all",
    ],
)
def test_a_forged_share_is_damaged(tmp_path: Path, forged: ConfigValue) -> None:
    run_of(tmp_path)
    config = read_config(tmp_path) | {SIMULTANEOUS: forged}
    signed = with_signature(config)
    (tmp_path / CONFIG).write_text(json.dumps(signed))
    with pytest.raises(InputError, match="damaged"):
        read_config(tmp_path)


def with_signature(config: Config) -> Config:
    """Return the configuration with the digest of its request, as a forger would compute it."""
    stored = config["requested"]
    assert isinstance(stored, dict)
    record = {key: value for key, value in stored.items() if key != "check"}
    return config | {"requested": record | {"check": digest(record, config)}}


@pytest.mark.parametrize("level", [1e999, 0.0, -0.001, "0.001", None])
def test_a_forged_level_is_damaged(level: ConfigValue) -> None:
    with pytest.raises(ValueError, match="the alpha that these share"):
        simultaneous_of({"alpha": level} | Simultaneous(4, ALPHA).to_config())


def test_a_share_binds_the_lines(tmp_path: Path) -> None:
    run_of(tmp_path)
    config = read_config(tmp_path)
    del config[SIMULTANEOUS]
    (tmp_path / CONFIG).write_text(json.dumps(with_signature(config)))
    with pytest.raises(InputError, match="of another configuration"):
        read_run(tmp_path)
    resign(tmp_path)
    assert simultaneous_of(read_config(tmp_path)) is None


def test_check_simultaneous_passes_what_agrees(tmp_path: Path) -> None:
    own: Config = {"alpha": 0.001}
    shared = own | Simultaneous(4, ALPHA).to_config()
    check_simultaneous(tmp_path, own, own)
    check_simultaneous(tmp_path, shared, json.loads(json.dumps(shared)))
    assert difference(shared, own) == "simultaneous.images: 4 there, None here, " + (
        "simultaneous.alpha: 0.004 there, None here"
    )


def test_certify_in_python_without_a_folder() -> None:
    run = certify(
        SmallCNN(width=4),
        "digits",
        "rotation",
        "uniform:30deg",
        n=200,
        max=5,
        alpha=0.01,
        simultaneous=True,
        progress=False,
    )
    assert run.config[SIMULTANEOUS] == {"images": 5, "alpha": 0.01}
    assert {result.certificate.alpha for result in run} == {run.config["alpha"]} == {0.002}


@pytest.mark.parametrize(
    ("n", "alpha", "message"),
    [
        (9, 0.004, "n is 9; it must be at least 11 to certify anything at alpha = 0.001"),
        (200, 2.0**-62, "shared by 7 images; it must leave each at least"),
    ],
)
def test_a_share_that_cannot_be_attained_is_refused_before_sampling(
    tmp_path: Path, n: int, alpha: float, message: str
) -> None:
    most = 4 if n == 9 else None
    some = {"n": n, "alpha": alpha, "max": most, "out": tmp_path / "run"}
    with pytest.raises(InputError, match=message):
        certify_dataset(smoothed(), IMAGES, n0=N0, simultaneous=True, **some)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
