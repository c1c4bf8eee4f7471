"""Images, labels and datasets as people have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from deformrs import certify_dataset
from deformrs.errors import InputError
from deformrs.inputs import ImageLike, as_dataset, as_image, as_label
from examples import smoothed

BYTES: NDArray[np.uint8] = np.random.Generator(np.random.PCG64(0)).integers(
    0, 256, (3, 12, 10), dtype=np.uint8
)
FLOATS = torch.from_numpy(BYTES).float() / 255
LAST = BYTES.transpose(1, 2, 0)


@pytest.mark.parametrize(
    "image",
    [
        FLOATS,
        FLOATS.numpy(),
        FLOATS.numpy().astype(np.float64),
        FLOATS.numpy()[:, ::-1][:, ::-1],
        BYTES,
        LAST,
        np.ascontiguousarray(LAST),
        torch.from_numpy(BYTES),
        torch.from_numpy(LAST),
        Image.fromarray(np.ascontiguousarray(LAST)),
    ],
    ids=lambda image: f"{type(image).__name__} {getattr(image, 'dtype', '')}",
)
def test_every_form_of_an_image_means_the_same_floats(image: ImageLike) -> None:
    assert torch.equal(as_image("it", image), FLOATS)


@pytest.mark.parametrize("image", [BYTES[0], Image.fromarray(BYTES[0]), FLOATS[0], FLOATS[:1]])
def test_grey_images_get_their_channel(image: ImageLike) -> None:
    assert torch.equal(as_image("it", image), FLOATS[:1])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 24, 3), np.uint8), "plainly one of them: give floats"),
        (np.zeros((24, 24, 24), np.uint8), "with 1, 3 or 4 channels"),
        (torch.zeros(24, 24, 3), r"channels first.*permute\(2, 0, 1\)"),
        (FLOATS - 0.5, r"undo its normalisation.*NetworkSpec"),
        (FLOATS * 255, "divide by 255"),
        (BYTES.astype(np.int64), r"int64.*astype\(numpy.uint8\)"),
        (BYTES > 100, "of type bool"),
        (Image.new("RGBA", (8, 8)), r'mode RGBA.*image.convert\("RGB"\)'),
        (Image.new("I;16", (8, 8)), "mode I;16"),
        ("cat.png", r"a str; .* PIL.Image.open\(file\)"),
        (FLOATS[None], "image.*removes one"),
    ],
)
def test_nothing_is_rescaled_or_transposed_by_guessing(image: ImageLike, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_image("it", image)


@pytest.mark.parametrize("label", [1, np.int64(1), torch.tensor(1), torch.tensor([1]), np.array(1)])
def test_labels_are_integers(label: object) -> None:
    assert as_label("it", label, 2) == 1


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (torch.tensor([0, 1]), r"of shape \(2,\).*one integer.*argmax"),
        (torch.tensor(0.7), "0.7000.*one integer"),
        (1.0, "one integer"),
        ("cat", "one integer"),
        (None, "one integer"),
        (2, r"must lie in \[0, 1\]"),
        (-1, r"must lie in \[0, 1\]"),
    ],
)
def test_labels_are_not_truncated(label: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_label("it", label, 2)


GREY = torch.from_numpy(BYTES).unsqueeze(1).float() / 255
LABELS = torch.tensor([0, 1, 2])


class Pictures(Dataset[tuple[Image.Image, int]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(BYTES[index]), index


class Stream(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield GREY[0], 0


DATASETS: dict[str, Callable[[], object]] = {
    "pairs": lambda: list(zip(GREY, LABELS, strict=True)),
    "lists": lambda: [[image, label] for image, label in zip(GREY, LABELS, strict=True)],
    "arrays": lambda: (GREY.numpy(), LABELS.numpy()),
    "bytes": lambda: (BYTES, [0, 1, 2]),
    "tensors": lambda: TensorDataset(GREY, LABELS),
    "PIL": Pictures,
    "loader": lambda: DataLoader(TensorDataset(GREY, LABELS), batch_size=2),
    "loader of PIL": lambda: DataLoader(Pictures(), batch_size=None),
    "Hugging Face": lambda: [{"image": Image.fromarray(BYTES[k]), "label": k} for k in range(3)],
}


@pytest.mark.parametrize("name", DATASETS)
def test_every_form_of_a_dataset_gives_the_same_results(name: str) -> None:
    expected = list(certify_dataset(smoothed(), DATASETS["pairs"](), n=20))  # type: ignore[arg-type]
    assert list(certify_dataset(smoothed(), DATASETS[name](), n=20)) == expected  # type: ignore[arg-type]


PAIRS = TensorDataset(GREY, LABELS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: DataLoader(PAIRS, shuffle=True), "shuffled.*shuffle=False.*loader.dataset"),
        (lambda: DataLoader(PAIRS, sampler=WeightedRandomSampler([1, 1, 1], 3)), "sampled"),
        (lambda: DataLoader(PAIRS, batch_sampler=[[2, 1], [0]]), "sampled"),
        (lambda: DataLoader(PAIRS, batch_size=None, sampler=RandomSampler(PAIRS)), "sampled"),
        (lambda: DataLoader(PAIRS, sampler=SequentialSampler(range(2))), "sampled"),
        (lambda: DataLoader(PAIRS, batch_size=2, drop_last=True), "without its last images"),
        (lambda: DataLoader(PAIRS, collate_fn=list), "a collate_fn of its own"),
        (lambda: DataLoader(PAIRS, batch_size=None, collate_fn=list), "a collate_fn of its own"),
        (lambda: DataLoader(Stream()), "over an iterable"),
        (Stream, "with a length"),
        (lambda: iter([(GREY[0], 0)]), r"with a length: list\(data\)"),
        (lambda: GREY, "give the labels too"),
        (lambda: "digits", "load_data"),
        (lambda: {"train": PAIRS, "test": PAIRS}, r"choose a split"),
        (lambda: (GREY, LABELS[:2]), "one label for each"),
        (lambda: (GREY[0], LABELS), "one label for each"),
        (lambda: (GREY[0], torch.tensor(1)), "one label for each"),
        (list, "must have at least one image"),
        (lambda: [(GREY[0], 0, "cat.png")], r"3 values; it must be a pair"),
        (lambda: [GREY[0]], "a Tensor; it must be a pair"),
        (lambda: [{"image": GREY[0], "fine_label": 0}], r"'image', 'fine_label'.*rename_column"),
        (lambda: [(GREY[0], 0), (GREY[1], 0.5)], "image 1 is 0.5.*one integer"),
    ],
)
def test_what_is_no_dataset_is_refused(data: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(certify_dataset(smoothed(), data(), n=20))  # type: ignore[arg-type]


def test_a_dataset_is_not_copied() -> None:
    assert as_dataset(PAIRS) is PAIRS
    assert as_dataset(DataLoader(PAIRS)) is PAIRS


def test_a_photograph_that_lies_on_its_side_is_refused() -> None:
    photograph = Image.fromarray(BYTES[0])
    photograph.getexif()[ExifTags.Base.Orientation] = 6
    with pytest.raises(InputError, match=r"must be upright: PIL.ImageOps.exif_transpose"):
        as_image("it", photograph)
    assert as_image("it", ImageOps.exif_transpose(photograph)).shape[0] == 1


def test_floats_with_one_channel_at_the_end_are_refused() -> None:
    with pytest.raises(InputError, match="channels first"):
        as_image("it", np.zeros((28, 28, 1), np.float32))
