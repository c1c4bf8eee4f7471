"""Class folders and labels.csv: the images in them, and their labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from image_folders import class_folders, listed_folder, pixels, shared, write_image

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()


def load(
    folder: Path, class_names: tuple[str, ...] | None = None, num_classes: int | None = None
) -> ImageSet:
    return load_data(str(folder), AS_STORED, class_names=class_names, num_classes=num_classes)


def folder_labels(images: ImageSet) -> dict[str, int]:
    """The label of each class folder."""
    sources = (images.source(index) for index in range(len(images)))
    return {name.split("/")[0]: label for name, label in zip(sources, images.labels, strict=True)}


def test_sorted_order_and_the_description_of_the_dataset(tmp_path: Path) -> None:
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


def test_wordnet_ids_have_imagenets_indices(tmp_path: Path) -> None:
    # Numbers 1, 207 and 999 of the usual order: goldfish, golden retriever, toilet tissue.
    wnids = {"n15075141": 1, "n01443537": 1, "n02099601": 2}
    images = load(class_folders(tmp_path, wnids), num_classes=1000)
    assert folder_labels(images) == {"n01443537": 1, "n02099601": 207, "n15075141": 999}
    assert images.name == "imagenet"
    assert images.class_names is not None
    assert images.class_names[207] == "golden retriever"
    assert images.about["labels"] == "WordNet ids in ImageNet's order"


def test_wordnet_ids_are_not_forced_on_a_model_of_other_classes(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "few", {"n02099601": 1, "n01443537": 1})
    assert folder_labels(load(folder, num_classes=2)) == {"n01443537": 0, "n02099601": 1}
    assert load(folder, num_classes=2).name == "few"
    # A thousand and one, as where class 0 is the background: ImageNet's order would be off by one.
    with pytest.raises(InputError, match="class folders is 2; it must be .* 1001"):
        load(folder, num_classes=1001)
    named = load(folder, class_names=("n02099601", "n01443537"))
    assert folder_labels(named) == {"n02099601": 0, "n01443537": 1}


def test_one_wrong_wordnet_id_does_not_change_the_rule_for_all(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"n01443537": 1, "n02099600": 1})
    with pytest.raises(InputError, match="'n02099600'.*did you mean 'n02099601'"):
        load(folder, num_classes=1000)


def test_the_models_names_come_first(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"polar-Bear": 1, "BLACK_cat": 1})
    images = load(folder, class_names=("Zebra", "Black cat", "polar bear"))
    assert folder_labels(images) == {"BLACK_cat": 1, "polar-Bear": 2}
    assert images.about["labels"] == "the model's class names"
    assert images.class_names == ("Zebra", "Black cat", "polar bear")


def test_a_misspelt_name_is_refused(tmp_path: Path) -> None:
    # Sorted order would call the birds cats.
    folder = class_folders(tmp_path, {"bird": 1, "cat": 1, "dogs": 1})
    with pytest.raises(InputError, match="'dogs'.*did you mean 'dog'"):
        load(folder, class_names=("cat", "dog", "bird"))


def test_an_ambiguous_name_is_refused_unless_its_spelling_is_exact(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"crane": 1})
    with pytest.raises(InputError, match="'crane'.*ambiguous: it stands for classes 0 and 2"):
        load(folder, class_names=("crane", "dog", "crane"))
    assert folder_labels(load(folder, class_names=("Crane", "dog", "crane"))) == {"crane": 2}


def test_integers_are_labels(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"10": 1, "2": 1, "7": 1})
    images = load(folder, num_classes=20)
    assert folder_labels(images) == {"10": 10, "2": 2, "7": 7}
    assert images.about["labels"] == "whole numbers"
    assert images.class_names is None
    with pytest.raises(InputError, match="the label of .*10/0.png is 10; .*0 to 9"):
        load(folder, num_classes=10)
    (folder / "2").rename(folder / "-2")
    with pytest.raises(InputError, match="-2/0.png is -2"):
        load(folder)


def test_imagenets_names_need_a_model_of_a_thousand_classes(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "fruit", {"lemon": 1, "Granny_Smith": 1})
    assert folder_labels(load(folder, num_classes=1000)) == {"Granny_Smith": 948, "lemon": 951}
    assert load(folder, num_classes=1000).name == "fruit"
    assert folder_labels(load(folder)) == {"Granny_Smith": 0, "lemon": 1}


def test_folders_that_do_not_fit_the_model_are_not_guessed(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 1, "b": 1, "c": 1})
    with pytest.raises(InputError, match="folders is 3; .* 5, .*WordNet id.*number.*labels.csv"):
        load(folder, num_classes=5)
    (folder / "d").mkdir()  # a class without images is a class all the same
    assert load(folder, num_classes=4).class_names == ("a", "b", "c", "d")
    with pytest.raises(InputError, match="folders is 4"):
        load(folder, num_classes=3)


def test_nested_folders_count_and_hidden_ones_do_not(tmp_path: Path) -> None:
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


def test_a_folder_named_like_a_published_dataset_is_marked(
    tmp_path: Path,
) -> None:
    folder = class_folders(tmp_path / "imagenet", {"a": 1, "b": 1})
    assert load(folder).name == "imagenet (folder)"


def test_unprintable_names_are_escaped(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 0, "b": 1})
    (folder / "a" / "x\ny\udcff.png").write_bytes(b"")
    images = load(folder)
    assert images.source(0) == "a/x\\ny\\udcff.png"
    with pytest.raises(InputError) as refusal:
        images[0]
    assert "\n" not in str(refusal.value)
    str(refusal.value).encode()


def test_a_list_of_integers_keeps_its_order(tmp_path: Path) -> None:
    folder = listed_folder(tmp_path / "mine", "file,label\nb.png,3\n\na.png,0\n")
    images = load(folder, num_classes=4)
    assert images.labels == (3, 0)
    assert [images.source(i) for i in (0, 1)] == ["b.png", "a.png"]
    assert np.array_equal(images[0][0] * 255, pixels(1).transpose(2, 0, 1))
    assert images.about["labels"] == "labels.csv: whole numbers"
    assert images.name == "mine"
    assert images.class_names is None


def test_lists_written_by_spreadsheets(tmp_path: Path) -> None:
    text = '\ufefffile, label\r\n"a, b.png", 1\r\nsub/c.png, 0\r\n'
    images = load(listed_folder(tmp_path, text, ("a, b.png", "sub/c.png")))
    assert images.labels == (1, 0)
    assert images.source(1) == "sub/c.png"


def test_a_list_of_class_names(tmp_path: Path) -> None:
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


def test_other_words_are_the_classes_of_a_new_model(tmp_path: Path) -> None:
    text = "file,label\na.png,dog\nb.png,cat\n"
    folder = listed_folder(tmp_path, text)
    result = load_data(folder, split="train")
    assert (result.labels, result.class_names) == ((1, 0), ("cat", "dog"))
    assert result.about["labels"] == "labels.csv: its words in sorted order"
    for split in ("train", "test"):
        again = load_data(folder, split=split, class_names=result.class_names, num_classes=2)
        assert (again.labels, again.class_names) == (result.labels, result.class_names)
        assert again.about["sha256"] == result.about["sha256"]
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


def test_other_words_are_not_imagenet_whatever_the_files_are_called(tmp_path: Path) -> None:
    files = ("ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    text = f"file,label\n{files[0]},dog\n{files[1]},cat\n"
    result = load_data(listed_folder(tmp_path / "mine", text, files), split="train")
    assert (result.name, result.class_names) == ("mine", ("cat", "dog"))


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


def test_a_list_that_is_not_utf8(tmp_path: Path) -> None:
    folder = listed_folder(tmp_path, "")
    (folder / "labels.csv").write_bytes("file,label\nä.png,0\n".encode("latin-1"))
    with pytest.raises(InputError, match="labels.csv is not readable .*UTF-8"):
        load(folder)


def test_photographs_of_imagenet() -> None:
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


def test_the_rule_of_the_labels_in_words(tmp_path: Path) -> None:
    pets = class_folders(tmp_path / "pets", {"dog": 1, "cat": 1, "b\ncat": 1})
    images = load(pets, num_classes=3)
    assert images.label_words(most=2) == (
        r"the class folders in sorted order: b\ncat = 0, cat = 1, … (3 classes)"
    )
    assert images.is_matched_by_order
    model = ("Persian", "tabby", "Dog")
    assert load(pets, (*model[:2], "hound")).label_words(model) == (
        r"the class folders in sorted order: b\ncat = 0 (Persian), cat = 1 (tabby), dog = 2"
    )
    folder = class_folders(tmp_path / "w", {"n02099601": 1, "n01443537": 1})
    wordnet = load(folder, num_classes=1000)
    assert wordnet.label_words(wordnet.class_names) == (
        "WordNet ids in ImageNet's order: n01443537 = 1 (goldfish), n02099601 = 207 "
        "(golden retriever)"
    )
    assert not wordnet.is_matched_by_order
    listed = load(listed_folder(tmp_path / "list", "file,label\na.png,12\nb.png,2\n"))
    assert listed.label_words() == "labels.csv, integers: 2, 12"
