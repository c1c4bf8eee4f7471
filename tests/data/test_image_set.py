"""The stratified split, and the images that a training held out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from image_folders import class_folders, listed_folder

from deformrs.config import ConfigValue
from deformrs.data import HeldOut, ImageSet, load_data
from deformrs.data.image_set import stratified_split
from deformrs.data.preparation import Preparation, pixels_digest
from deformrs.errors import InputError

LABELS = np.random.default_rng(0).integers(0, 10, 1000).tolist()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.1, 1 / 3, 0.5])
def test_the_split_is_a_partition_and_classes_keep_their_share(share: float) -> None:
    trained, held_out = stratified_split(LABELS, share, seed=3)
    assert trained.dtype == held_out.dtype == np.int64
    assert sorted([*trained, *held_out]) == list(range(1000))
    assert (np.diff(trained) > 0).all()
    assert (np.diff(held_out) > 0).all()
    assert len(held_out) == round(share * 1000)
    for name in range(10):
        total = LABELS.count(name)
        held = sum(LABELS[index] == name for index in held_out)
        assert math.floor(share * total) <= held <= math.ceil(share * total)


def test_the_split_depends_on_the_seed_alone() -> None:
    first = stratified_split(LABELS, 0.1, seed=0)[1]
    assert np.array_equal(first, stratified_split(tuple(LABELS), 0.1, seed=0)[1])
    assert not np.array_equal(first, stratified_split(LABELS, 0.1, seed=1)[1])
    # Recorded once: a run that resumes on another machine must hold out the same images.
    assert first[:6].tolist() == [2, 3, 11, 13, 20, 21]


def test_a_share_of_zero_holds_out_nothing() -> None:
    trained, held_out = stratified_split(LABELS, 0, seed=0)
    assert trained.tolist() == list(range(1000))
    assert held_out.tolist() == []


def test_every_class_keeps_an_image() -> None:
    labels = [0] * 97 + [1, 2, 2]
    for seed in range(20):
        trained, held_out = stratified_split(labels, 0.5, seed)
        assert {labels[index] for index in trained} == {0, 1, 2}
        assert len(held_out) == 50


@pytest.mark.parametrize("share", [-0.1, 0.51, 1, math.nan, math.inf, "0.1", None, True])
def test_bad_shares(share: float) -> None:
    with pytest.raises(InputError, match=r"the share to hold out is .* must lie in \[0, 0.5\]"):
        stratified_split(LABELS, share, seed=0)


@pytest.mark.parametrize(
    ("labels", "share"), [(LABELS[:50], 0.009), ([0, 1, 2, 3], 0.5), ([0], 0.5), ([], 0.1)]
)
def test_too_small_shares(labels: list[int], share: float) -> None:
    with pytest.raises(InputError, match=f"at least one of {len(labels)} images.*larger share"):
        stratified_split(labels, share, seed=0)


@pytest.mark.parametrize("seed", [-1, 1.5, 2**64])
def test_bad_seeds(seed: int) -> None:
    with pytest.raises(InputError, match="seed is"):
        stratified_split(LABELS, 0.1, seed)


def digests(images: ImageSet) -> list[str]:
    return [pixels_digest(pixels) for pixels, _ in images]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_guarantee_held_out_images_are_those_that_training_does_not_see(
    tmp_path: Path, share: float
) -> None:
    whole = load_data(class_folders(tmp_path / "some", {"cat": 9, "dog": 11}), split="train")
    part = HeldOut(share, seed=3).of(whole)
    seen, unseen = stratified_split(whole.labels, share, 3)
    assert part.indices == tuple(unseen)
    assert len(part) == len(unseen) == round(20 * share)
    # Images of one number are identical in both classes: their names tell them apart.
    trained = {whole.source(int(index)) for index in seen}
    held = [part.source(index) for index in range(len(part))]
    assert trained.isdisjoint(held)
    assert trained | set(held) == {whole.source(index) for index in range(20)}
    assert digests(part) == [digests(whole)[index] for index in unseen]
    assert part.labels == tuple(whole.labels[index] for index in unseen)


def test_the_description_of_held_out_images(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "some", {"cat": 6, "dog": 6})
    whole = load_data(folder, Preparation(channels=1), split="train")
    held_out = HeldOut(0.25, 1, str(whole.about["sha256"]))
    part = load_data(folder, Preparation(channels=1), split="held-out", held_out=held_out)
    assert part.name == part.about["name"] == "some (held out of training)"
    assert (part.about["split"], part.about["pictures"], len(part)) == ("held-out", 3, 3)
    assert part.class_names == ("cat", "dog")
    assert HeldOut.from_about(part.about) == held_out
    assert HeldOut.from_about(whole.about) is None
    assert part[0][0].shape == (1, 6, 8)
    with pytest.raises(IndexError, match="has no image 3"):
        _ = part[3]
    known = {str(part.about["sha256"]), str(whole.about["sha256"])}
    for other in (HeldOut(0.25, 2), HeldOut(0.4, 1)):
        known.add(str(other.of(whole).about["sha256"]))
    assert len(known) == 4, "each part has a digest of its own"


def test_another_training_split_is_refused() -> None:
    with pytest.raises(InputError, match="the training split of digits is not the one trained on"):
        load_data("digits", split="held-out", held_out=HeldOut(0.1, 0, "0" * 64))
    part = load_data("digits", split="held-out", held_out=HeldOut(0.1, 0))
    assert re.fullmatch(r"digits train \d+", part.source(7))
    assert len(part) == 400


def test_a_changed_list_is_another_training_split(tmp_path: Path) -> None:
    files = tuple(f"{number}.png" for number in range(6))
    text = "file,label\n" + "".join(f"{file},{k % 2}\n" for k, file in enumerate(files))
    folder = listed_folder(tmp_path / "list", text, files)
    held_out = HeldOut(0.5, 0, str(load_data(folder, split="train").about["sha256"]))
    assert len(load_data(folder, split="held-out", held_out=held_out, num_classes=2)) == 3
    (folder / "labels.csv").write_text(text.replace("5.png,1", "5.png,0"))
    with pytest.raises(InputError, match="not the one trained on"):
        load_data(folder, split="held-out", held_out=held_out)


def test_bad_requests_for_held_out_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", images=np.zeros((2, 4, 4), np.uint8), labels=[0, 1])
    for share, message in (
        (0, "must be above 0"),
        (0.6, "must lie in"),
        (float("nan"), "must lie in"),
    ):
        with pytest.raises(InputError, match=message):
            HeldOut(share, 0)
    with pytest.raises(InputError, match="seed"):
        HeldOut(0.1, -1)
    with pytest.raises(InputError, match="must hold out at least one of 2 images"):
        load_data(tmp_path / "one.npz", split="held-out", held_out=HeldOut(0.5, 0))
    with pytest.raises(InputError, match="is known only of a training that held images out"):
        load_data("digits", split="held-out")
    with pytest.raises(InputError, match="must be 'held-out' if held_out is given"):
        load_data("digits", split="train", held_out=HeldOut(0.5, 0))
    some: list[ConfigValue] = [{"share": 0.1}, {"share": "a", "seed": 0, "sha256": "b"}, 3, []]
    for damaged in some:
        with pytest.raises(InputError, match="held_out of a run's data"):
            HeldOut.from_about({"held_out": damaged})
