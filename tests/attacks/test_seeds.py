"""A model built for the noise of a known seed; seeds that nobody can know beforehand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import deformrs
from commands import deformrs as command
from commands import fails
from deformrs import SamplingPlan, SmoothedClassifier, Stopping, Translation, Uniform
from deformrs.checks import SEED_BITS
from deformrs.cli.options import SamplingOptions
from deformrs.dataset import certify_dataset, run_seed
from deformrs.errors import InputError
from deformrs.runs import load_run, read_config, read_run
from examples import IMAGE, smoothed

SIZE = (12, 12)
NOISE = Uniform("2px")
SAMPLES = 500


class Trained:
    """Answers 1 on what it has seen, and 0 elsewhere, as a network that has learnt it by heart."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.learning = True

    def __call__(self, images: Tensor) -> Tensor:
        keys = [image.numpy().tobytes() for image in images]
        if self.learning:
            self.seen.update(keys)
        known = torch.tensor([key in self.seen for key in keys])
        return torch.stack([~known, known], dim=1).float()


def test_a_model_that_knows_the_seed_is_certified_falsely_and_no_other() -> None:
    """The attack: its smoothed answer is 0, but all samples of seed 0 were shown to it."""
    model = Trained()
    g = SmoothedClassifier(model, Translation(), NOISE, 2)
    g.certify(IMAGE, n=SAMPLES, seed=0)
    model.learning = False
    assert g.certify(IMAGE, n=SAMPLES, seed=0).prediction == 1, "this is why seeds are drawn"
    for seed in (1, 2):
        assert g.certify(IMAGE, n=SAMPLES, seed=seed).prediction == 0


@pytest.mark.usefixtures("random_seeds")
def test_nothing_that_is_certified_has_a_seed_known_beforehand(tmp_path: Path) -> None:
    model = Trained()
    g = SmoothedClassifier(model, Translation(), NOISE, 2)
    certificate = g.certify(IMAGE, n=SAMPLES)
    model.learning = False
    assert certificate.prediction == 1, "learnt while it was sampled"
    assert g.certify(IMAGE, n=SAMPLES, seed=certificate.seed).prediction == 1
    assert g.certify(IMAGE, n=SAMPLES).prediction == 0
    assert g.predict(IMAGE, n=SAMPLES) == 0
    assert g.certify_batch([IMAGE])[0].prediction == 0
    for out in (None, tmp_path):
        (result,) = certify_dataset(g, [(IMAGE, 0)], n=SAMPLES, out=out)
        assert result.certificate.prediction == 0
    run = deformrs.certify(
        deformrs.models.SmallCNN(width=4), "digits", "rotation", "uniform:30deg", n=20, max=1
    )
    seeds = [SamplingPlan().seed, SamplingPlan().seed, run[0].certificate.seed, certificate.seed]
    assert len({*seeds}) == 4


@pytest.mark.usefixtures("random_seeds")
def test_fresh_seeds_have_64_bits() -> None:
    """Each of 64 bits is 0 in half of 200 seeds: none is constant, but for 64 in 2**199 cases."""
    seeds = [SamplingPlan().seed for _ in range(200)]
    assert max(seeds).bit_length() <= SEED_BITS == 64
    for bit in range(SEED_BITS):
        assert len({seed >> bit & 1 for seed in seeds}) == 2


@pytest.mark.usefixtures("random_seeds")
def test_a_certificate_carries_its_seed_and_is_repeated_by_it(tmp_path: Path) -> None:
    g = smoothed()
    certificate = g.certify(IMAGE, n=300)
    assert f"seed={certificate.seed}" in repr(certificate)
    assert certificate.at(alpha=0.01).seed == certificate.seed
    assert g.certify(IMAGE, n=300, seed=certificate.seed).counts == certificate.counts
    (result,) = certify_dataset(g, [(IMAGE, 0)], n=300, out=tmp_path)
    (stored,) = load_run(tmp_path)
    seed = stored.certificate.seed
    assert seed == result.certificate.seed == read_config(tmp_path)["seed"]
    assert g.certify(IMAGE, n=300, seed=seed).counts == stored.certificate.counts


@pytest.mark.usefixtures("random_seeds")
@pytest.mark.parametrize("stopping", [None, Stopping(radii=("10deg",))])
def test_a_resumed_run_goes_on_with_its_own_seed(tmp_path: Path, stopping: Stopping | None) -> None:
    g, data = smoothed(), [(IMAGE, 0), (IMAGE.flip(-1), 1), (IMAGE.flip(-2), 2)]
    options = {"n": 300, "stopping": stopping}
    list(certify_dataset(g, data, max=1, out=tmp_path, **options))  # type: ignore[arg-type]
    results = list(certify_dataset(g, data, out=tmp_path, **options))  # type: ignore[arg-type]
    assert len({result.certificate.seed for result in results}) == 1
    seed = results[0].certificate.seed
    assert list(certify_dataset(g, data, seed=seed, **options)) == results  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed"):
        list(certify_dataset(g, data, seed=1, out=tmp_path, **options))  # type: ignore[arg-type]


@pytest.mark.usefixtures("random_seeds")
def test_guarantee_run_seed_is_fresh_for_a_run_without_samples(tmp_path: Path) -> None:
    """A model folder may bring a configuration with a seed; certify stores its run there."""
    out = tmp_path / "run"
    list(certify_dataset(smoothed(), [(IMAGE, 0)], n=100, out=out, seed=7))
    assert run_seed(out, None) == 7
    (out / "certificates.jsonl").write_bytes(b"")
    (out / "times.tsv").write_bytes(b"")
    assert run_seed(out, None) != 7
    assert run_seed(out, 7) == 7
    [result] = certify_dataset(smoothed(), [(IMAGE, 0)], n=100, out=out)
    assert result.certificate.seed == read_config(out)["seed"] != 7


@pytest.mark.usefixtures("random_seeds")
def test_the_command_line_draws_records_and_repeats_seeds(tmp_path: Path, network: Path) -> None:
    model = ("--model", str(network), "--data", "digits", "--n", "200", "--max", "2")
    turn = ("--deformation", "rotation", "--noise", "uniform:30deg", "--device", "cpu")
    printed = [
        command("certify", *model, *turn, "--out", name, cwd=tmp_path).stdout for name in ("a", "b")
    ]
    seeds = [read_config(tmp_path / name)["seed"] for name in ("a", "b")]
    assert seeds[0] != seeds[1]
    for text, seed in zip(printed, seeds, strict=True):
        assert re.search(rf"^seed +{seed}$", text, re.MULTILINE)
    again = ("--seed", str(seeds[0]), "--out", "c")
    command("certify", *model, *turn, *again, cwd=tmp_path)
    lines = [(tmp_path / name / "certificates.jsonl").read_bytes() for name in ("a", "c")]
    assert lines[0] == lines[1]
    more = command("certify", *model[:-1], "3", *turn, "--out", "a", cwd=tmp_path).stdout
    assert f"{seeds[0]}" in more
    assert read_config(tmp_path / "a")["seed"] == seeds[0]


@pytest.mark.usefixtures("random_seeds")
def test_predict_draws_a_seed_and_gives_every_image_its_own_noise(
    tmp_path: Path, network: Path
) -> None:
    for name, level in (("one.png", 90), ("same.png", 90), ("other.png", 91)):
        image = Image.new("L", (28, 28))
        image.paste(level, (8, 4, 16, 22))
        image.save(tmp_path / name)
    files = ("predict", "one.png", "same.png", "other.png", "--model", str(network))
    turn = ("--deformation", "rotation", "--noise", "uniform:90deg", "--n", "400", "--json")

    def answers(*options: str) -> list[dict[str, object]]:
        printed = command(*files, *turn, "--alpha", "0.3", *options, cwd=tmp_path).stdout
        return [json.loads(line) | {"file": ""} for line in printed.splitlines()]

    first, second = answers(), answers()
    seed = first[0]["seed"]
    assert seed != second[0]["seed"]
    assert first[0] == first[1]
    assert answers("--seed", str(seed)) == first
    text = command(*files, *turn[:-1], cwd=tmp_path)
    assert re.search(r"^note: the noise is random; --seed \d+ repeats it$", text.stderr, re.M)


@pytest.mark.parametrize("alpha", [1e-20, 1e-100])
def test_no_level_below_that_of_guessing_the_seed_is_promised(
    tmp_path: Path, network: Path, alpha: float
) -> None:
    """Neither for new samples nor for stored counts, in Python or on the command line."""
    limit = r"alpha.* is 1e-\d+; it must be at least 2\*\*-64, .*: its entropy is the limit"
    g, least = smoothed(), 2.0**-64
    run = tmp_path / "run"
    results = list(certify_dataset(g, [(IMAGE, 0)], n=200, out=run))
    certificate = results[0].certificate
    counts, space = certificate.counts, certificate.space
    calls: list[Callable[[float], object]] = [
        lambda level: SamplingPlan(alpha=level),
        lambda level: g.certify(IMAGE, n=200, alpha=level),
        lambda level: g.predict(IMAGE, n=200, alpha=level),
        lambda level: certificate.at(alpha=level),
        lambda level: g.noise.certify(counts, space, level),
        lambda level: read_run(run, alpha=level),
        lambda level: SamplingOptions(alpha=level),
    ]
    for call in calls:
        with pytest.raises(InputError, match=limit):
            call(alpha)
        call(least)
    level = ("--alpha", str(alpha))
    noise = ("--model", network, "--deformation", "rotation", "--noise", "uniform:30deg", *level)
    Image.new("L", (28, 28)).save(tmp_path / "image.png")
    (tmp_path / "some.toml").write_text(
        'out = "runs"\n[train]\ndata = "digits"\nmodel = "small_cnn"\nepochs = 1\n'
        f"[certify]\nalpha = {alpha}\n"
        '[[runs]]\ndeformation = "rotation"\nnoise = "uniform:30deg"\n'
    )
    for words in (
        ("certify", *noise, "--data", "digits", "--out", "new"),
        ("predict", "image.png", *noise),
        ("report", run, *level),
        ("gallery", "--run", run, *level),
        ("sweep", "some.toml"),
    ):
        assert re.search(limit, fails(*words, cwd=tmp_path))
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "runs").exists()


def test_the_noise_of_two_images_differs() -> None:
    """Files of one call of predict once had the same noise, and so did images without an index."""
    g = smoothed()
    some, others = (g.certify(IMAGE, n=2000, seed=5, index=index).counts for index in (0, 1))
    assert some.estimation != others.estimation
