"""ImageNet's classes, and models that have them in another order."""

from __future__ import annotations

import pytest

import torchvision_ops
from deformrs.data.labels import imagenet_names, imagenet_wnids, in_imagenet_order, label_folders
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
