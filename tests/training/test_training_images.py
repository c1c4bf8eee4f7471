"""Choosing between holding and streaming; what is no set to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import (
    CPU,
    Elsewhere,
    Failing,
    Slow,
    as_given,
    bits,
    bytes_of,
    damage,
    photographs,
    stored,
)
from PIL import Image
from torch import Tensor

from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.training.images import (
    Held,
    Hold,
    Labelled,
    Streamed,
    framed,
    free_bytes,
    is_light,
    source_for,
    usable_cores,
)

GREY = torch.full((1, 4, 4), 0.5)
PAIRS = [(GREY, 0), (GREY, 1), (GREY, 2)]


def test_what_fits_is_held() -> None:
    digits = load_data("digits", split="train")
    seen: list[int] = []
    source = source_for(digits, np.arange(1, 4000, 2), CPU, num_classes=10, looked=seen.append)
    assert isinstance(source, Held)
    assert source.words == "2,000 images held on cpu (1.6 MB)"
    assert seen[-1] == 2000


def test_what_does_not_fit_is_streamed() -> None:
    side = 1024
    image = torch.zeros(1, side, side)
    fitting = free_bytes(CPU) // 4 // side**2
    images = [(image, 0), (image, 1)] * fitting
    source = source_for(images, range(len(images)), CPU, workers=0)
    assert isinstance(source, Streamed)
    assert source.words == f"{len(images):,} images streamed by the main process"
    # Images that are not of bytes take four times as much: half as many are twice too many.
    images[1] = (torch.full_like(image, 0.3), 1)
    assert isinstance(source_for(images, range(fitting // 2), CPU, workers=0), Streamed)


@pytest.mark.parametrize(
    ("workers", "by"), [(0, "the main process"), (1, "1 worker"), (2, "2 workers")]
)
def test_no_holding_where_it_is_not_wanted(workers: int, by: str, tmp_path: Path) -> None:
    images = stored(tmp_path / "x.npz", bytes_of(9, 3, 5, 6))
    source = source_for(images, [5, 0, 8], CPU, num_classes=3, hold="no", workers=workers)
    assert source.words == f"3 images streamed by {by}"
    (batch, labels), *_ = source.batches(torch.tensor([[2, 1, 0, 0]]))
    assert bits(batch) == as_given(images, [8, 0, 5, 5])
    assert labels.tolist() == [2, 0, 2, 2]
    source.close()


def test_slow_images_are_gathered_by_workers() -> None:
    """One process would sleep fifteen seconds over them, which is more than its patience."""
    source = source_for(Elsewhere(3000, 0.005, side=128), range(3000), CPU, workers=6)
    assert isinstance(source, Held)
    ((batch, labels),) = source.batches(torch.tensor([[2999, 130, 8]]))
    assert batch.min() == 1
    assert labels.tolist() == [1, 0, 0]
    quick = source_for(Elsewhere(20, 0.001, side=4), range(20), CPU, workers=2)
    ((batch, _),) = quick.batches(torch.tensor([[19, 3]]))
    assert batch.max() == 0


def test_workers_where_a_set_is_light(tmp_path: Path) -> None:
    folder = load_data(photographs(tmp_path / "x"), Preparation(resize=40, crop=(40, 40)))
    assert is_light(folder, 10_000)
    assert not is_light(folder, 100)
    words = source_for(folder, range(12), CPU, hold="no").words
    assert words.startswith(f"12 images streamed by {min(32, usable_cores())} worker")
    arrays = stored(tmp_path / "x.npz", bytes_of(100, 1, 64, 64))
    assert not is_light(arrays, 100 * 64 * 64)
    assert is_light(arrays, 100 * 64 * 64 + 10_000)
    assert not is_light(lambda: None, 10_000)


def test_a_list_of_pairs_will_do() -> None:
    images = [(torch.full((1, 2, 2), k / 7, dtype=torch.float64), k % 2) for k in range(7)]
    for hold in ("yes", "no"):
        source = source_for(images, range(7), CPU, hold=hold, workers=0)
        batch, labels = next(source.batches(torch.arange(7)[None]))
        assert torch.equal(batch, torch.stack([image for image, _ in images]).float())
        assert labels.tolist() == [0, 1, 0, 1, 0, 1, 0]


class Unlike(Slow):
    """Its labels say one thing, its images another."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return GREY, 0


BAD: dict[str, tuple[Labelled, str]] = {
    "nothing": ([], "the data is without images; it must have at least one"),
    "one class": ([(GREY, 2)] * 3, "the data is of one class, 2; it must show at least two"),
    "label 3": ([*PAIRS, (GREY, 3)], "the label of image 3 is 3; .*integer from 0 to 2"),
    "label -1": ([*PAIRS, (GREY, -1)], "the label of image 3 is -1"),
    "label 0.5": ([*PAIRS, (GREY, 0.5)], "the label of image 3 is 0.5"),  # type: ignore[list-item]
    "no label": ([*PAIRS, (GREY, None)], "the label of image 3 is missing"),  # type: ignore[list-item]
    "no pair": ([*PAIRS, GREY[0, 0]], "image 3 is not readable .*ValueError"),  # type: ignore[list-item]
    "size": ([*PAIRS, (GREY[:, :3], 0)], "image 3 is of 3 x 4 px; .*4 x 4.*--resize and --crop"),
    "channels": ([*PAIRS, (GREY.expand(3, 4, 4), 0)], "image 3 is of 3 channel.*--channels 3"),
    "rank": ([*PAIRS, (GREY[0], 0)], r"image 3 is of shape \(4, 4\)"),
    "rank of the first": ([(GREY[0], 0), *PAIRS], r"image 0 is of shape \(4, 4\)"),
    "empty": ([(GREY[:0], 0), *PAIRS], r"image 0 is of shape \(0, 4, 4\)"),
    "above 1": ([*PAIRS, (GREY * 3, 0)], r"image 3 is in \[1.5, 1.5\]; .*divide by 255"),
    "below 0": ([*PAIRS, (GREY * -1, 0)], r"image 3 is in \[-0.5, -0.5\]"),
    "NaN": ([*PAIRS, (GREY * np.nan, 0)], "image 3 is not a number somewhere"),
    "bytes": ([*PAIRS, (GREY.byte(), 0)], "image 3 is of type uint8; .*divide bytes by 255"),
    "text": ([*PAIRS, ("x.png", 0)], "image 3 is of type str"),  # type: ignore[list-item]
    "a fault": (Failing(6), "frame 3 is not readable"),
    "labels unlike": (Unlike(4), "the label of image 1 is 0; it must be 1 as in the labels"),
}


@pytest.mark.parametrize("hold", ["auto", "yes", "no"])
@pytest.mark.parametrize("name", BAD)
def test_no_set_to_train_on(name: str, hold: Hold) -> None:
    images, message = BAD[name]
    places = range(len(images))

    def read() -> None:
        source = source_for(images, places, CPU, num_classes=3, hold=hold, workers=0)
        list(source.batches(torch.tensor([places])))

    with pytest.raises(InputError, match=f"^{message}") as caught:
        read()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("indices", [[], np.zeros(0, np.int64), [[0, 1]]])
def test_no_images_chosen(indices: list[int]) -> None:
    with pytest.raises(InputError, match="the data is without images"):
        source_for(PAIRS, indices, CPU)


@pytest.mark.parametrize("indices", [[0, 3], [-1, 0], [0.5]])
def test_images_chosen_that_are_not_there(indices: list[int]) -> None:
    with pytest.raises(InputError, match="the choice of images is .* from 0 to 2"):
        source_for(PAIRS, indices, CPU)


def test_all_labels_count_not_only_the_chosen() -> None:
    """A part that is held out may be of one class."""
    assert len(source_for(PAIRS, [1], CPU)) == 1


def test_fewer_labels_than_images() -> None:
    images = Slow(6)
    images.labels = (0, 1)
    with pytest.raises(InputError, match="the number of labels is 2; it must be .* images, 6"):
        source_for(images, [0], CPU)


def test_bad_options() -> None:
    with pytest.raises(InputError, match="hold is 'yess'; .*did you mean 'yes'"):
        source_for(PAIRS, range(3), CPU, hold="yess")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="workers is -1"):
        source_for(PAIRS, range(3), CPU, hold="no", workers=-1)
    with pytest.raises(InputError, match="the number of classes is 0"):
        source_for(PAIRS, range(3), CPU, num_classes=0)


def test_a_damaged_file_is_named_while_it_is_held(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x")
    path = damage(folder / "cat" / "5.jpg")
    images = load_data(folder, Preparation(resize=32, crop=(32, 32)))
    with pytest.raises(InputError, match=f"^the image {path} is damaged"):
        source_for(images, range(12), CPU)
    assert len(source_for(images, range(6, 12), CPU)) == 6


def test_files_of_different_size_and_colour(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x", sides=(40,))
    Image.fromarray(bytes_of(1, 50, 40)[0]).save(folder / "cat" / "2.png")
    with pytest.raises(InputError, match=r"cat/2.png is of 1 channel.*cat/0.jpg.*--channels 3"):
        source_for(load_data(folder), range(13), CPU)
    colour = load_data(folder, Preparation(channels=3))
    assert source_for(colour, range(13), CPU).channels == 3
    Image.fromarray(bytes_of(1, 50, 41)[0]).save(folder / "cat" / "2.png")
    with pytest.raises(InputError, match=r"cat/2.png is of 50 x 41 px; .* 50 x 40 px like"):
        source_for(load_data(folder, Preparation(channels=3)), range(13), CPU)


@pytest.mark.parametrize(
    ("given", "crop"),
    [
        (Preparation(resize=256, crop=(224, 224), channels=3), (256, 256)),
        (Preparation(resize=64, crop=(64, 48), interpolation="bicubic"), (64, 64)),
        (Preparation(resize=32, crop=(32, 32)), (32, 32)),
        (Preparation(resize=32, crop=(28, 40)), (28, 40)),
        (Preparation(resize=(40, 60), crop=(32, 32)), (32, 32)),
        (Preparation(crop=(32, 32)), (32, 32)),
        (Preparation(resize=32), None),
        (Preparation(channels=1), None),
    ],
)
def test_the_frame_of_photographs(given: Preparation, crop: tuple[int, int] | None) -> None:
    frame = framed(given)
    assert frame.crop == crop
    assert (frame.resize, frame.interpolation, frame.channels) == (
        *(given.resize, given.interpolation),
        given.channels,
    )


def test_the_centre_of_the_frame_is_what_is_certified(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x")
    preparation = Preparation(resize=36, crop=(30, 30))
    cut, frame = load_data(folder, preparation), load_data(folder, framed(preparation))
    assert source_for(frame, range(12), CPU).size == (36, 36)
    for (small, _), (large, _) in zip(cut, frame, strict=True):
        # The middle of a middle may lie a pixel aside where a length is odd.
        centres = [
            large[:, 3 + down : 33 + down, 3 + right : 33 + right]
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
        ]
        assert any(np.array_equal(small, centre) for centre in centres)
