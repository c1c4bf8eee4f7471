"""`deformrs verify`: what was edited, changed or removed is found, and said."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, zeros

from commands import deformrs, run_inside
from deformrs import Rotation, SmoothedClassifier, Uniform, certify, certify_dataset
from deformrs.config import Config
from deformrs.data.preparation import Preparation
from deformrs.errors import DeformRSError, InputError, ModelError
from deformrs.models import SmallCNN, save_model
from deformrs.runs import CERTIFICATES, CertifiedRun, read_config, read_run
from deformrs.runs.records import signed
from deformrs.stopping import Stopping
from deformrs.verification import Resampling, contradiction, verify_counts
from examples import IMAGES, network, smoothed
from made_runs import resign

SAMPLES = ("--n", "300", "--n0", "40", "--device", "cpu")
TURN = ("--deformation", "rotation", "--noise", "uniform:60deg", *SAMPLES)
CODE = """
import torch
from helper import turned
class Bright(torch.nn.Module):
    def forward(self, images):
        halves = images.chunk(2, dim=-1 - turned)
        return torch.stack([half.mean((1, 2, 3)) for half in halves], 1)
def build():
    return Bright()
"""


class Shifted(SmallCNN):
    """Has the weights of the network, and another function."""

    __qualname__ = "SmallCNN"

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).roll(1, dims=1)


def shifted() -> SmallCNN:
    return Shifted(num_classes=5, width=4, seed=3).eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, images, and a run of it, one that stopped early, and one of a network in code."""
    place = tmp_path_factory.mktemp("verify")
    save_model(place / "net", SmallCNN(width=2, seed=1).eval(), Preparation(channels=1))
    (place / "net.py").write_text(CODE)
    (place / "helper.py").write_text("turned = 0\n")
    generator = np.random.default_rng(0)
    for name in ("0", "1"):
        (place / "photos" / name).mkdir(parents=True)
        for index in range(4):
            pixels = generator.integers(0, 256, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "photos" / name / f"{index}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        words = ("certify", "--data", "photos", *TURN)
        run_inside(*words, "--model", "net", "--max", "5", "--out", "runs/fixed")
        run_inside(*words, "--model", "net", "--radii", "5deg", "--out", "runs/stopped")
        run_inside(*words, "--model", "net.py:build", "--out", "code")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def refused(*arguments: str | Path) -> str:
    """Verify what must not pass; return the checks that failed, with their reasons."""
    done = deformrs("verify", *arguments, code=1)
    assert re.fullmatch(r"error: \d of \d runs not verified: .*\n", done.stderr)
    assert "verified" not in done.stdout
    return "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line)


@pytest.mark.parametrize("named", [True, False])
def test_the_files_of_a_run_of_objects_are_verified(tmp_path: Path, named: bool) -> None:
    net = SmallCNN(width=2, seed=1).eval()
    data = "digits" if named else [(zeros(1, 28, 28), 0)]
    certify(net, data, "rotation", "uniform:30deg", n=50, max=1, out=tmp_path, progress=False)
    said = deformrs("verify", tmp_path, "--no-model").stdout
    assert "options   not checked: the run was made in Python from objects" in said
    assert re.search("made in Python from objects; .*: verify it in Python", refused(tmp_path))


@pytest.mark.usefixtures("place")
def test_what_is_no_run_is_named() -> None:
    assert "the run folder is net.py; it must hold a config.json" in refused("net.py")


@pytest.mark.usefixtures("place")
def test_runs_as_they_were_made_are_verified() -> None:
    run_inside("pack", "runs/fixed")
    said = deformrs("verify", "runs").stdout.splitlines()
    assert [line for line in said if not line.startswith(" ")][:2] == ["runs/fixed", "runs/stopped"]
    assert said[-1].startswith("verified: 2 runs")
    counts = [line.split(maxsplit=1)[1] for line in said if line.startswith("  counts")]
    assert counts[0] == "5 images are unchanged; 4 sampled again: 1,360 samples, the same counts"
    assert counts[1].startswith("8 images are unchanged; 8 sampled again: ")
    said = deformrs("verify", "runs/fixed", "--images", "9").stdout.splitlines()
    assert "5 sampled again: 1,700 samples" in said[5]


def test_many_samples_are_drawn_again_only_in_full(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deformrs.verification._AFFORDABLE", 16 * 16 * 1000)
    run = place / "runs" / "fixed"
    said = deformrs("verify", run).stdout
    assert "160 samples, the same counts of those that select the class (all: --full)" in said
    assert "1,360 samples, the same counts\n" in deformrs("verify", run, "--full").stdout


def edit_line(run: Path) -> None:
    path = run / "certificates.jsonl"
    path.write_text(path.read_text().replace('"label": 1', '"label": 0', 1))


def edit_option(run: Path) -> None:
    path = run / "config.json"
    path.write_text(path.read_text().replace("uniform:60deg", "uniform:6deg"))


def edit_configuration(run: Path) -> None:
    path = run / "config.json"
    path.write_text(path.read_text().replace('"scale": 1.04', '"scale": 0.04'))


def change_weights(run: Path) -> None:
    net = SmallCNN(width=2, seed=2).eval()
    save_model(run.parents[1] / "net", net, Preparation(channels=1))


def change_image(run: Path) -> None:
    path = run.parents[1] / "photos" / "1" / "0.png"
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def remove_image(run: Path) -> None:
    (run.parents[1] / "photos" / "1" / "0.png").unlink()


def remove_line(run: Path) -> None:
    path = run / "certificates.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))


def cut_last_line(run: Path) -> None:
    path = run / "certificates.jsonl"
    path.write_text(path.read_text()[:-20])


def remove_last_line(run: Path) -> None:
    path = run / "certificates.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def mark_unsound(run: Path) -> None:
    (run / "unsound.txt").write_text("the prediction for 3.png is not repeated\n")


@pytest.mark.parametrize(
    ("change", "file", "message"),
    [
        (edit_line, "certificates.jsonl", "damaged (line 2: .*changed.*restore it"),
        (edit_option, "config.json", "noise.scale: 1.04.* there, 0.10.* here.*restore them"),
        (edit_configuration, "fixed", "of another configuration.*restore it"),
        (change_weights, "model.safetensors", "must be what was certified: restore it"),
        (change_image, "image 4 (1/0.png)", "not the one certified.*restore it"),
        (remove_image, "photos", "not the one certified \\(pictures: 8 there, 7 here.*restore"),
        (remove_line, "", "(lines|counts) .*image 4.*restore"),
        (cut_last_line, "certificates.jsonl", "incomplete \\(4 of 5 images\\).*repeat deformrs"),
        (remove_last_line, "certificates.jsonl", "incomplete \\(4 of 5 images\\).*repeat deformrs"),
        (mark_unsound, "runs/fixed", "marked as unsound .*certify a fixed model"),
    ],
)
def test_what_was_changed_is_named(
    place: Path, change: Callable[[Path], None], file: str, message: str
) -> None:
    change(place / "runs" / "fixed")
    failed = refused("runs/fixed")
    assert file in failed
    assert re.search(message.replace("damaged (", "damaged \\("), failed), failed
    assert len(failed.splitlines()) == 1
    seen_with_model = change in (change_weights, change_image, remove_image)
    if seen_with_model:
        assert "files verified, no model was run" in run_inside("verify", "runs", "--no-model")
    elif change is not remove_line:
        assert refused("runs/fixed", "--no-model") == failed
    assert f"{1 + seen_with_model} of 2 runs" in deformrs("verify", "runs", code=1).stderr


def test_code_is_executed_only_if_trusted_and_is_not_its_file_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest covers the file that builds the network, not those that it imports."""
    assert "someone you trust" in refused("code")
    assert "verified: 1 run" in deformrs("verify", "code", "--trust-code").stdout
    assert "verified: 1 run" in deformrs("verify", "code", "--model", "net.py:build").stdout
    (place / "helper.py").write_text("turned = 1\n")
    monkeypatch.delitem(sys.modules, "helper")
    failed = refused("code", "--trust-code")
    assert re.search(r"counts +FAILED: the prediction for image \d \(./.\.png\) is not", failed)


def test_files_that_moved_are_named_anew(place: Path) -> None:
    for name in ("net", "photos"):
        (place / name).rename(place / f"{name}2")
    assert "options" not in refused("runs/fixed")
    moved = ("--model", "net2", "--data", "photos2")
    assert "verified: 1 run" in deformrs("verify", "runs/fixed", *moved).stdout


@pytest.mark.parametrize("name", ["fixed", "stopped"])
def test_counts_that_cannot_be_equal_are_compared_with_fresh_samples(
    place: Path, name: str
) -> None:
    run = place / "runs" / name
    resign(run, torch="1.0")
    assert "the same counts" in deformrs("verify", run).stdout, "another torch may repeat them"
    resign(run, generator="another")
    said = deformrs("verify", run).stdout
    assert "not compared exactly (generator: another there, philox here, torch: 1.0 there" in said
    assert "fresh samples agree with the stored counts (false alarms: at most 1e-06)" in said


def test_fresh_samples_tell_another_model(tmp_path: Path) -> None:
    data = [(image, 0) for image in IMAGES]
    list(certify_dataset(smoothed(network()), data, n=500, out=tmp_path))
    resign(tmp_path, generator="another")
    run = read_run(tmp_path)
    again = verify_counts(smoothed(network()), data, run)
    assert again.differences == "generator: another there, philox here"
    with pytest.raises(ModelError, match="fresh samples, and for .* stored ones"):
        verify_counts(smoothed(shifted()), data, run)


def test_guarantee_verify_counts_repeats_the_counts_or_says_why_not(tmp_path: Path) -> None:
    data = [(image, 0) for image in IMAGES]
    list(certify_dataset(smoothed(network()), data, n=500, out=tmp_path))
    run = read_run(tmp_path)
    for some, samples in ((1, 600), (3, 1800), (9, 1800)):
        again = verify_counts(smoothed(network()), data, run, some=some)
        assert again == Resampling(min(some, 3), samples, estimated=True)
    with pytest.raises(ModelError, match="the prediction for image"):
        verify_counts(smoothed(shifted()), data, run)
    for classifier in (
        smoothed(SmallCNN(num_classes=5, width=4, seed=4).eval()),
        SmoothedClassifier(network(), Rotation(), Uniform(1.9), 5, batch_size=64),
        SmoothedClassifier(network(), Rotation(), Uniform(2.0), 5, padding="border"),
    ):
        with pytest.raises(InputError, match="the classifier is not that of the run"):
            verify_counts(classifier, data, run)
    with pytest.raises(InputError, match="image 1 .* not the one certified"):
        verify_counts(smoothed(network()), [data[0], data[0], data[2]], run)
    with pytest.raises(InputError, match="image 2 .* label 1"):
        verify_counts(smoothed(network()), [*data[:2], (data[2][0], 1)], run)
    with pytest.raises(InputError, match="must have image 2, which the run certified"):
        verify_counts(smoothed(network()), data[:2], run)


def change_lines(folder: Path, change: Callable[[Config], None]) -> None:
    """Change every line of a run and sign it again."""
    path, config = folder / CERTIFICATES, read_config(folder)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["check"]
        change(record)
    path.write_text("".join(signed(record, config) + "\n" for record in records))


def test_guarantee_verify_counts_compares_pairs_and_the_bound_of_each_image(tmp_path: Path) -> None:
    data = [(image, 0) for image in IMAGES]
    stopping = Stopping(tolerance=0.02)
    list(certify_dataset(smoothed(network()), data, n=5000, stopping=stopping, out=tmp_path / "a"))
    before = read_run(tmp_path / "a")
    assert all(result.certificate.counts.pairs for result in before)
    assert verify_counts(smoothed(network()), data, before, full=True).estimated

    def agree(record: Config) -> None:
        total = sum(record["stratified"].values())  # type: ignore[union-attr, arg-type]
        record |= {"stratified": {"1": total}, "disagreements": {}}

    def prefer(record: Config) -> None:
        record["method"] = "stratified_runner_up@0.9999"

    for change, message in ((agree, "the prediction for image"), (prefer, "the bound of image")):
        shutil.copytree(tmp_path / "a", tmp_path / change.__name__)
        change_lines(tmp_path / change.__name__, change)
        run = read_run(tmp_path / change.__name__)
        with pytest.raises(DeformRSError, match=message):
            verify_counts(smoothed(network()), data, run, full=True)
    with pytest.raises(
        InputError, match=r"is stratified_runner_up@0\.9999; it must be .*_runner_up"
    ):
        verify_counts(smoothed(network()), data, run)


def test_a_bound_chosen_after_the_counts_were_seen_is_found_without_sampling(place: Path) -> None:
    """Of any image, and where its counts cannot be repeated."""
    run = place / "runs/fixed"

    def prefer(record: Config) -> None:
        if record["index"] == 1:
            record["method"] = "runner_up@0.9999"

    resign(run, method="auto")
    change_lines(run, prefer)
    assert "runner_up@0.9999; it must be" in refused("runs/fixed", "--no-model")
    data = [(image, 0) for image in IMAGES]
    list(certify_dataset(smoothed(network()), data, n=500, out=place / "own"))
    resign(place / "own", generator="another")
    change_lines(place / "own", prefer)
    with pytest.raises(InputError, match="the bound of image 1"):
        verify_counts(smoothed(network()), data, read_run(place / "own"), some=1)


def test_a_bound_that_does_not_hold_where_sampling_stops_early_is_damage(place: Path) -> None:
    resign(place / "runs/stopped", method="clopper_pearson")
    assert "does not hold where sampling stops early" in refused("runs/stopped", "--no-model")


class Sorted:
    """Images that come class by class."""

    labels = (0, 0, 0, 0, 1, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return IMAGES[index % 3], self.labels[index]


def test_a_run_that_began_with_images_of_each_class_is_extended_to_all(tmp_path: Path) -> None:
    for most in (2, 3, None):
        list(certify_dataset(smoothed(), Sorted(), n=100, out=tmp_path, max=most))
    run = read_run(tmp_path)
    assert [result.index for result in run] == [0, 4, 1, 2, 3, 5]
    assert verify_counts(smoothed(), Sorted(), run, some=6).images == 6
    for chosen in ([0, 4, 1, 3], [1], [0, 2]):
        results = [result for index in chosen for result in run if result.index == index]
        with pytest.raises(InputError, match=f"with image {chosen[-1]} where image .* is due"):
            verify_counts(smoothed(), Sorted(), CertifiedRun(run.config, results))


def test_guarantee_contradiction_is_rare_where_nothing_changed() -> None:
    """More than 100 of 500 at alpha = 0.1 would happen by chance in one of 10**10 tests."""
    generator = np.random.default_rng(3)
    p = (0.5, 0.3, 0.2, 0.0)
    before, now = generator.multinomial(900, p, 500), generator.multinomial(900, p, 500)
    found = [contradiction(a, b, 0.1) for a, b in zip(before.tolist(), now.tolist(), strict=True)]
    assert sum(class_ is not None for class_ in found) <= 100
    other = generator.multinomial(900, (0.2, 0.3, 0.5, 0.0), 20)
    pairs = zip(before[:20].tolist(), other.tolist(), strict=True)
    assert all(contradiction(a, b, 1e-6) in (0, 2) for a, b in pairs)
