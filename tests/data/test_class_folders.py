"""Folders of class folders: what is found in them, and which label each folder gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from image_files import class_folders, pixels, write_image

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()


def load(
    folder: Path, class_names: tuple[str, ...] | None = None, num_classes: int | None = None
) -> ImageSet:
    return load_data(str(folder), AS_STORED, class_names=class_names, num_classes=num_classes)


def label_of(images: ImageSet) -> dict[str, int]:
    """The label of each class folder."""
    sources = (images.source(index) for index in range(len(images)))
    return {name.split("/")[0]: label for name, label in zip(sources, images.labels, strict=True)}


def test_sorted_order_and_what_the_set_says_of_itself(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"dog": 2, "cat": 1, "b-cat": 1})
    images = load(folder, num_classes=3)
    assert images.name == "pets"
    assert images.class_names == ("b-cat", "cat", "dog")
    assert images.labels == (0, 1, 2, 2)
    sources = [images.source(i) for i in range(4)]
    assert sources == ["b-cat/0.png", "cat/0.png", "dog/0.png", "dog/1.png"]
    assert images.about["labels"] == "the class folders in sorted order"
    assert images.about["pictures"] == len(images) == 4
    assert images.about["split"] is None
    assert images.about["source"] == str(folder)
    assert images.about["preparation"] == AS_STORED.to_config()
    image, label = images[3]
    assert label == 2
    assert image.dtype == np.float32
    assert np.array_equal(image, pixels(1).transpose(2, 0, 1).astype(np.float32) / 255)
    assert [label for _, label in images] == [0, 1, 2, 2]
    with pytest.raises(IndexError, match="no image 4"):
        images[4]


def test_wordnet_ids_have_imagenets_numbers(tmp_path: Path) -> None:
    # Numbers 1, 207 and 999 of the usual order: goldfish, golden retriever, toilet tissue.
    wnids = {"n15075141": 1, "n01443537": 1, "n02099601": 2}
    images = load(class_folders(tmp_path, wnids), num_classes=1000)
    assert label_of(images) == {"n01443537": 1, "n02099601": 207, "n15075141": 999}
    assert images.name == "imagenet"
    assert images.class_names is not None
    assert images.class_names[207] == "golden retriever"
    assert images.about["labels"] == "WordNet ids in ImageNet's order"


def test_wordnet_ids_are_not_forced_on_a_model_of_other_classes(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "few", {"n02099601": 1, "n01443537": 1})
    assert label_of(load(folder, num_classes=2)) == {"n01443537": 0, "n02099601": 1}
    assert load(folder, num_classes=2).name == "few"
    # A thousand and one, as where class 0 is the background: ImageNet's order would be off by one.
    with pytest.raises(InputError, match="class folders is 2; it must be .* 1001"):
        load(folder, num_classes=1001)
    named = load(folder, class_names=("n02099601", "n01443537"))
    assert label_of(named) == {"n02099601": 0, "n01443537": 1}


def test_one_wrong_wordnet_id_does_not_change_the_rule_for_all(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"n01443537": 1, "n02099600": 1})
    with pytest.raises(InputError, match="'n02099600'.*did you mean 'n02099601'"):
        load(folder, num_classes=1000)


def test_the_models_names_come_first(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"polar-Bear": 1, "BLACK_cat": 1})
    images = load(folder, class_names=("Zebra", "Black cat", "polar bear"))
    assert label_of(images) == {"BLACK_cat": 1, "polar-Bear": 2}
    assert images.about["labels"] == "the model's class names"
    assert images.class_names == ("Zebra", "Black cat", "polar bear")


def test_a_name_that_is_nearly_the_models_is_refused(tmp_path: Path) -> None:
    # Sorted order would call the birds cats.
    folder = class_folders(tmp_path, {"bird": 1, "cat": 1, "dogs": 1})
    with pytest.raises(InputError, match="'dogs'.*did you mean 'dog'"):
        load(folder, class_names=("cat", "dog", "bird"))


def test_a_name_of_two_classes_is_refused_but_its_exact_spelling_decides(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"crane": 1})
    with pytest.raises(InputError, match="'crane'.*ambiguous: it stands for classes 0 and 2"):
        load(folder, class_names=("crane", "dog", "crane"))
    assert label_of(load(folder, class_names=("Crane", "dog", "crane"))) == {"crane": 2}


def test_whole_numbers_are_labels(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"10": 1, "2": 1, "007": 1})
    images = load(folder, num_classes=20)
    assert label_of(images) == {"10": 10, "2": 2, "007": 7}
    assert images.about["labels"] == "whole numbers"
    assert images.class_names is None
    with pytest.raises(InputError, match="the label of .*10/0.png is 10; .*0 to 9"):
        load(folder, num_classes=10)
    (folder / "2").rename(folder / "-2")
    with pytest.raises(InputError, match="-2/0.png is -2"):
        load(folder)


def test_imagenets_names_need_a_model_of_a_thousand_classes(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "fruit", {"lemon": 1, "Granny_Smith": 1})
    assert label_of(load(folder, num_classes=1000)) == {"Granny_Smith": 948, "lemon": 951}
    assert load(folder, num_classes=1000).name == "fruit"
    assert label_of(load(folder)) == {"Granny_Smith": 0, "lemon": 1}


def test_folders_that_do_not_fit_the_model_are_not_guessed(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 1, "b": 1, "c": 1})
    with pytest.raises(InputError, match="folders is 3; .* 5, .*WordNet id.*number.*labels.csv"):
        load(folder, num_classes=5)
    (folder / "d").mkdir()  # a class without images is a class all the same
    assert load(folder, num_classes=4).class_names == ("a", "b", "c", "d")
    with pytest.raises(InputError, match="folders is 4"):
        load(folder, num_classes=3)


def test_folders_below_other_files_and_hidden_ones(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 1, "b": 1})
    write_image(folder / "a" / "deep" / "er" / "x.JPG")
    write_image(folder / "a" / ".thumbs" / "x.png")
    write_image(folder / ".git" / "x.png")
    (folder / "a" / "._0.png").write_bytes(b"left behind by a Mac")
    (folder / "b" / "notes.txt").write_text("none")
    (folder / "readme.txt").write_text("none")
    images = load(folder)
    assert [images.source(i) for i in range(len(images))] == [
        "a/0.png",
        "a/deep/er/x.JPG",
        "b/0.png",
    ]


def test_split_folders(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    class_folders(folder / "train", {"cat": 3, "dog": 3})
    class_folders(folder / "val", {"cat": 1, "dog": 1})
    test = load_data(str(folder), AS_STORED)
    train = load_data(str(folder), AS_STORED, split="train")
    assert (len(test), len(train)) == (2, 6)
    assert test.name == train.name == "pets"
    assert (test.about["split"], test.about["folder"]) == ("test", "val")
    class_folders(folder / "test", {"cat": 2, "dog": 2})
    assert len(load_data(str(folder), AS_STORED)) == 4
    class_folders(tmp_path / "half" / "train", {"cat": 1})
    with pytest.raises(InputError, match="split into train; it must hold test or val"):
        load_data(str(tmp_path / "half"), AS_STORED)
    class_folders(tmp_path / "i" / "val", {"n01443537": 1})
    assert load_data(str(tmp_path / "i"), AS_STORED).name == "imagenet"


def test_folders_without_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without images and class folders"):
        load(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(InputError, match="without an image"):
        load(tmp_path)
    write_image(tmp_path / "cat" / "x.png")
    write_image(tmp_path / "lost.png")
    with pytest.raises(InputError, match="lost.png is beside the class folders"):
        load(tmp_path)
    write_image(tmp_path / "flat" / "x.png")
    with pytest.raises(InputError, match="without labels for its 1 image; .*labels.csv"):
        load(tmp_path / "flat")
    write_image(tmp_path / "official" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(InputError, match="without labels for its 1 image.*n01440764.*labels.csv"):
        load(tmp_path / "official")


def test_links_are_followed_but_not_in_a_circle(tmp_path: Path) -> None:
    store = class_folders(tmp_path / "store", {"cat": 2})
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "cats").symlink_to(store / "cat")
    assert len(load(tmp_path / "set")) == 2
    (store / "cat" / "again").symlink_to(store / "cat")
    with pytest.raises(InputError, match="must not lead in a circle"):
        load(tmp_path / "set")


def test_the_digest_changes_with_names_and_labels(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 1, "b": 1})
    names = ("a", "b")
    first = load(folder, names).about["sha256"]
    assert load(folder, names).about["sha256"] == first
    assert load(folder, ("b", "a")).about["sha256"] != first
    (folder / "a" / "0.png").rename(folder / "a" / "1.png")
    assert load(folder, names).about["sha256"] != first


def test_a_folder_may_be_called_like_a_published_set_but_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    folder = class_folders(tmp_path / "imagenet", {"a": 1, "b": 1})
    assert load(folder).name == "imagenet (folder)"


def test_names_that_do_not_print_are_shown_on_one_line(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 0, "b": 1})
    (folder / "a" / "x\ny\udcff.png").write_bytes(b"")
    images = load(folder)
    assert images.source(0) == "a/x\\ny\\udcff.png"
    with pytest.raises(InputError) as refusal:
        images[0]
    assert "\n" not in str(refusal.value)
    str(refusal.value).encode()
