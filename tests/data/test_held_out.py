"""The part of a set that a training held out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from image_files import class_folders, listed_folder

from deformrs.config import ConfigValue
from deformrs.data import HeldOut, ImageSet, load_data
from deformrs.data.image_set import stratified_split
from deformrs.data.preparation import Preparation, digest_of_pixels
from deformrs.errors import InputError


def digests(images: ImageSet) -> list[str]:
    return [digest_of_pixels(pixels) for pixels, _ in images]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_guarantee_held_out_images_are_those_that_training_does_not_see(
    tmp_path: Path, share: float
) -> None:
    whole = load_data(class_folders(tmp_path / "some", {"cat": 9, "dog": 11}), split="train")
    part = HeldOut(share, seed=3).of(whole)
    seen, unseen = stratified_split(whole.labels, share, 3)
    assert part.indices == tuple(unseen)
    assert len(part) == len(unseen) == round(20 * share)
    # Images of one number are alike in both classes: what they are called tells them apart.
    trained = {whole.source(int(place)) for place in seen}
    held = [part.source(index) for index in range(len(part))]
    assert trained.isdisjoint(held)
    assert trained | set(held) == {whole.source(index) for index in range(20)}
    assert digests(part) == [digests(whole)[place] for place in unseen]
    assert part.labels == tuple(whole.labels[place] for place in unseen)


def test_what_a_run_says_of_it(tmp_path: Path) -> None:
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


def test_the_training_split_is_the_one_it_was() -> None:
    with pytest.raises(InputError, match="the training split of digits is not the one trained on"):
        load_data("digits", split="held-out", held_out=HeldOut(0.1, 0, "0" * 64))
    part = load_data("digits", split="held-out", held_out=HeldOut(0.1, 0))
    assert re.fullmatch(r"digits train \d+", part.source(7))
    assert len(part) == 400


def test_a_changed_list_is_another_split(tmp_path: Path) -> None:
    files = tuple(f"{number}.png" for number in range(6))
    text = "file,label\n" + "".join(f"{file},{k % 2}\n" for k, file in enumerate(files))
    folder = listed_folder(tmp_path / "list", text, files)
    held_out = HeldOut(0.5, 0, str(load_data(folder, split="train").about["sha256"]))
    assert len(load_data(folder, split="held-out", held_out=held_out, num_classes=2)) == 3
    (folder / "labels.csv").write_text(text.replace("5.png,1", "5.png,0"))
    with pytest.raises(InputError, match="not the one trained on"):
        load_data(folder, split="held-out", held_out=held_out)


def test_what_cannot_be(tmp_path: Path) -> None:
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
