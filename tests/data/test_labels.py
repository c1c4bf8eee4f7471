"""ImageNet's classes, and models that have them in another order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchvision_ops
from deformrs.data.labels import (
    check_class_names,
    imagenet_names,
    imagenet_wnids,
    in_imagenet_order,
    label_folders,
    read_class_names,
    unknown_class,
)
from deformrs.errors import InputError

FOLDERS = ["n01440764", "n02123045"]  # tench, tabby
USUAL = (0, 281)


def numbers(class_names: tuple[str, ...] | None) -> tuple[int, ...]:
    result, _ = label_folders(FOLDERS, class_names, 1000)
    return tuple(result[folder] for folder in FOLDERS)


def test_the_usual_order() -> None:
    assert numbers(None) == USUAL
    assert numbers(imagenet_names()) == USUAL


def test_names_from_libraries_are_in_the_usual_order() -> None:
    torchvision_ops.declare()
    from timm.data.imagenet_info import ImageNetInfo
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    info = ImageNetInfo("imagenet-1k")
    for names in (
        tuple(_IMAGENET_CATEGORIES),
        tuple(info.index_to_description(number) for number in range(1000)),
        tuple(info.index_to_description(number, detailed=True) for number in range(1000)),
    ):
        assert in_imagenet_order(names)
        assert numbers(names) == USUAL


def test_another_order_is_followed() -> None:
    order = tuple(sorted(imagenet_names()))
    assert not in_imagenet_order(order)
    assert [order[number] for number in numbers(order)] == ["tench", "tabby"]


def test_a_thousand_other_classes_are_not_imagenet() -> None:
    with pytest.raises(InputError, match="the number of class folders is 2"):
        numbers(tuple(f"species {number}" for number in range(1000)))


def test_imagenets_classes() -> None:
    assert len(imagenet_wnids()) == len(set(imagenet_names())) == 1000
    assert list(imagenet_wnids()) == sorted(imagenet_wnids())
    # Numbers that every list of the classes agrees on.
    known = {
        0: "tench",
        65: "sea snake",
        207: "golden retriever",
        281: "tabby",
        999: "toilet tissue",
    }
    assert {number: imagenet_names()[number] for number in known} == known
    assert imagenet_wnids()["n02123045"] == 281


PETS = ("Café cat", "hound", "no, bird")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("names.txt", "Café cat\nhound\nno, bird"),
        ("names.txt", "\ufeffCafé cat\r\n  hound\r\nno, bird\r\n\r\n"),
        ("names.json", json.dumps(PETS)),
        ("names", json.dumps(PETS, ensure_ascii=False)),
        ("names.json", json.dumps({"1": "hound", "0": "Café cat", "2": "no, bird"})),
        ("names.json", json.dumps({"hound": 1, "Café cat": 0, "no, bird": 2})),
        ("keras.json", json.dumps({str(k): [f"n{k}", name] for k, name in enumerate(PETS)})),
        ("config.json", json.dumps({"id2label": dict(enumerate(PETS)), "label2id": {}})),
    ],
)
def test_files_of_class_names(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert read_class_names(tmp_path / name) == PETS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a list of names"),
        (b"cat\n\ndog\n", "'' for class 1; it must have a name for each class"),
        ("café".encode("latin-1"), "not readable .*must be UTF-8"),
        (b'["cat", ', "not readable .*JSON"),
        (b'{"1": "cat", "2": "dog"}', "class indices are not 0 to 1"),
        (b'{"one": "cat"}', "not readable .*'one'"),
        (b'{"cat": 0, "dog": 0}', "class indices are not 0 to 1"),
        (b'["cat", 3]', "3 for class 1"),
        (b'[["a"]]', r"\['a'\] for class 0"),
        (b"{}", "must be a list of names"),
    ],
)
def test_files_that_name_no_classes(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "names").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_class_names(tmp_path / "names")
    with pytest.raises(InputError, match="No such file"):
        read_class_names(tmp_path / "missing")


@pytest.mark.parametrize("names", ["cat", [], ["cat", " "], [1, 2]])
def test_class_names_in_python(names: list[str]) -> None:
    with pytest.raises(InputError, match="class_names is"):
        check_class_names(names)


@pytest.mark.parametrize(
    ("word", "known", "class_names", "num_classes", "remedy"),
    [
        ("tabbi", [], ("cat", "tabby"), 2, "did you mean 'tabby'"),
        ("hot dogg", ["cat"], ("cat", "dig"), 2, ": correct it$"),
        ("tabbi", [], None, 1000, "did you mean 'tabby'"),
        ("tabbi", ["goldfish"], None, None, "did you mean 'tabby'"),
        ("n0212304", ["n01443537"], None, None, "did you mean 'n02123045'"),
        ("tabbi", [], None, None, "must be an integer: .* by --class-names FILE"),
        ("tabbi", ["3"], None, 10, "must be an integer, of the same kind as '3'"),
        ("tabbi", ["tench"], imagenet_names(), 1000, "did you mean 'tabby'"),
    ],
)
def test_only_classes_of_the_model_are_suggested(
    word: str,
    known: list[str],
    class_names: tuple[str, ...] | None,
    num_classes: int | None,
    remedy: str,
) -> None:
    error = unknown_class("the label", word, known, class_names, num_classes)
    with pytest.raises(InputError, match=remedy):
        raise error
