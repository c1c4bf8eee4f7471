"""Folders with a labels.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from image_files import listed_folder, pixels, shared

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError


def load(
    folder: Path, class_names: tuple[str, ...] | None = None, num_classes: int | None = None
) -> ImageSet:
    return load_data(str(folder), Preparation(), class_names=class_names, num_classes=num_classes)


def test_numbers_in_the_order_of_the_list(tmp_path: Path) -> None:
    folder = listed_folder(tmp_path / "mine", "file,label\nb.png,3\n\na.png,0\n")
    images = load(folder, num_classes=4)
    assert images.labels == (3, 0)
    assert [images.source(i) for i in (0, 1)] == ["b.png", "a.png"]
    assert np.array_equal(images[0][0] * 255, pixels(1).transpose(2, 0, 1))
    assert images.about["labels"] == "labels.csv: whole numbers"
    assert images.name == "mine"
    assert images.class_names is None


def test_what_spreadsheets_write(tmp_path: Path) -> None:
    text = '\ufefffile, label\r\n"a, b.png", 1\r\nsub/c.png, 0\r\n'
    images = load(listed_folder(tmp_path, text, ("a, b.png", "sub/c.png")))
    assert images.labels == (1, 0)
    assert images.source(1) == "sub/c.png"


def test_names_of_classes(tmp_path: Path) -> None:
    folder = listed_folder(tmp_path, "file,label\na.png,Golden_retriever\nb.png,tench\n")
    names = ("tench", "golden retriever")
    assert load(folder, names).labels == (1, 0)
    assert load(folder, names).about["labels"] == "labels.csv: the model's class names"
    assert load(folder, num_classes=1000).labels == load(folder).labels == (207, 0)
    assert load(folder).about["labels"] == "labels.csv: ImageNet's class names"
    with pytest.raises(InputError, match="line 2 of labels.csv is 'Golden_retriever'"):
        load(folder, num_classes=2)
    listed_folder(tmp_path, "file,label\na.png,n02099601\nb.png,n01440764\n")
    assert load(folder).labels == (207, 0)
    assert load(folder).name != "imagenet"  # the classes are ImageNet's, the images need not be


def test_words_of_ones_own_are_classes_to_train(tmp_path: Path) -> None:
    text = "file,label\na.png,dog\nb.png,cat\n"
    folder = listed_folder(tmp_path, text)
    found = load_data(folder, split="train")
    assert (found.labels, found.class_names) == ((1, 0), ("cat", "dog"))
    assert found.about["labels"] == "labels.csv: its words in sorted order"
    for split in ("train", "test"):
        again = load_data(folder, split=split, class_names=found.class_names, num_classes=2)
        assert (again.labels, again.class_names) == (found.labels, found.class_names)
        assert again.about["sha256"] == found.about["sha256"]
    listed_folder(tmp_path, text.replace("dog", "tench"))
    assert load_data(folder, split="train").class_names == ("cat", "tench")
    with pytest.raises(InputError, match="the label on line 3 of labels.csv is 'cat'"):
        load_data(folder, split="test")
    with pytest.raises(InputError, match="the label on line 2 of labels.csv is 'tench'"):
        load_data(folder, split="train", num_classes=2)
    for word in ("", "3", "n01440764"):
        listed_folder(tmp_path, text.replace("dog", word))
        with pytest.raises(InputError, match="the label on line . of labels.csv is"):
            load_data(folder, split="train")


def test_words_of_ones_own_are_no_imagenet_whatever_the_files_are_called(tmp_path: Path) -> None:
    files = ("ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    text = f"file,label\n{files[0]},dog\n{files[1]},cat\n"
    found = load_data(listed_folder(tmp_path / "mine", text, files), split="train")
    assert (found.name, found.class_names) == ("mine", ("cat", "dog"))


def test_official_file_names_make_it_imagenet(tmp_path: Path) -> None:
    files = ("ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    text = f"file,label\n{files[0]},65\n{files[1]},970\n"
    folder = listed_folder(tmp_path / "val", text, files)
    assert load(folder, num_classes=1000).name == load(folder).name == "imagenet"
    assert load(folder, num_classes=1001).name == "val"
    listed_folder(folder, text.replace("970", "1970"), files)
    assert load(folder).name == "val"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 of .*labels.csv is ''; it must be the header file,label"),
        ("a.png,0\nb.png,1\n", "line 1 of .* is 'a.png,0'; it must be the header"),
        ("file;label\na.png;0\n", "line 1 of .* is 'file;label'"),
        ("file,label\n", "labels.csv is empty"),
        ("file,label\na.png,0\nb.png\n", "line 3 of labels.csv is of 1 value;"),
        ("file,label\na.png,0,x\n", "line 2 of labels.csv is of 3 values"),
        ("file,label\na.png,0\nb.png,1\na.png,0\n", "line 4 .* but is on line 2 too"),
        ("file,label\na.png,0\n./a.png,0\n", "line 3 .* but is on line 2 too"),
        ("file,label\na.png,0\nc.png,1\n", "line 3 of labels.csv is 'c.png'; it must be there"),
        ("file,label\nsub,1\n", "line 2 of labels.csv is 'sub'; it must be there"),
        ("file,label\n,1\n", "line 2 of labels.csv is ''; it must be the name of a file"),
        ("file,label\n../x/a.png,1\n", "line 2 .* in that folder or below"),
        ("file,label\nsub/../../a.png,1\n", "line 2 .* in that folder or below"),
        ("file,label\n/etc/hosts,1\n", "line 2 .* in that folder or below"),
        ("file,label\na\0.png,1\n", "labels.csv is|line 2 of labels.csv is"),
        ("file,label\na.png,1\nb.png,1.5\n", "line 3 .* is '1.5'; .* same kind as '1'"),
        ("file,label\na.png,1\nb.png,\n", "the label on line 3 of labels.csv is ''"),
        ("file,label\na.png,tench\nb.png,goldfsh\n", "line 3 .*did you mean 'goldfish'"),
        ("file,label\na.png,1\nb.png,-1\n", "b.png is -1; it must be a class of the model, 0 to 2"),
        ("file,label\na.png,3\n", "a.png is 3; it must be a class of the model, 0 to 2"),
        ('file,label\n"a.png,0\n', "labels.csv is not readable"),
    ],
)
def test_bad_lists_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    folder = listed_folder(tmp_path, text)
    (folder / "sub").mkdir()
    with pytest.raises(InputError, match=message) as refusal:
        load(folder, num_classes=None if "tench" in text else 3)
    assert "\n" not in str(refusal.value)


def test_a_list_that_is_no_text(tmp_path: Path) -> None:
    folder = listed_folder(tmp_path, "")
    (folder / "labels.csv").write_bytes("file,label\nä.png,0\n".encode("latin-1"))
    with pytest.raises(InputError, match="labels.csv is not readable .*UTF-8"):
        load(folder)


def test_the_photographs_of_imagenet() -> None:
    folder = shared("imagenet-val-1300")
    preparation = Preparation(resize=256, crop=(224, 224), channels=3)
    images = load_data(str(folder), preparation, num_classes=1000)
    assert (images.name, len(images)) == ("imagenet", 1300)
    assert len(set(images.labels)) == 725
    assert images.class_names is not None
    assert images.class_names[images.labels[0]] == "canoe"  # 472, the first line of the list
    for index in range(0, 1300, 100):
        image, _ = images[index]
        assert image.shape == (3, 224, 224)
        assert 0 <= image.min() < image.max() <= 1
