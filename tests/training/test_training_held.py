"""Images held on the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import CPU, as_given, bits, bytes_of, photographs, stored
from numpy.typing import NDArray

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.training.images import Held, Reading, as_bytes, as_floats, check_room, free_bytes

LEVELS = np.arange(256, dtype=np.uint8)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def made(kind: str, folder: Path) -> ImageSet:
    """A set of that kind; large ones are read in several goes."""
    exact = bytes_of(150, 1, 128, 128)
    floats = RNG.random((150, 1, 128, 128), dtype=np.float32)
    match kind:
        case "digits":
            return load_data("digits", Preparation(channels=3))
        case "bytes":
            return stored(folder / "x.npz", exact)
        case "floats":
            return stored(folder / "x.npz", floats)
        case "floats of bytes":
            return stored(folder / "x.npz", exact / np.float32(255))
        case "bytes, then floats":
            images = exact / np.float32(255)
            images[140:] = floats[140:]
            return stored(folder / "x.npz", images)
        case "floats, then bytes":
            images = exact / np.float32(255)
            images[:2] = floats[:2]
            return stored(folder / "x.npz", images)
        case "files":
            preparation = Preparation(resize=40, crop=(32, 36), interpolation="bicubic")
            return load_data(photographs(folder / "photographs"), preparation)
    raise AssertionError(kind)


RNG = np.random.default_rng(1)
KINDS = {
    "digits": 1,
    "bytes": 1,
    "floats": 4,
    "floats of bytes": 1,
    "bytes, then floats": 4,
    "floats, then bytes": 4,
    "files": 1,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_held_gives_the_pixels_of_the_set(kind: str, device: str, tmp_path: Path) -> None:
    batch = made(kind, tmp_path)
    chosen = RNG.permutation(len(batch))[: len(batch) - 2]
    seen: list[int] = []
    held = Held(Reading.of(batch, chosen, 10), torch.device(device), looked=seen.append)
    assert len(held) == len(chosen) == seen[-1]
    assert seen == sorted(set(seen))
    channels, *size = batch[0][0].shape
    assert (held.channels, held.size) == (channels, tuple(size))
    # As many bytes as there are pixels, or four times that: no more is kept than is needed.
    pixels = len(chosen) * batch[0][0].size
    assert held._images.nbytes == pixels * KINDS[kind]
    order = torch.from_numpy(RNG.integers(0, len(chosen), (5, 7)))
    batches = list(held.batches(order))
    assert len(batches) == 5
    for row, (images, labels) in zip(order, batches, strict=True):
        places = chosen[row].tolist()
        assert images.shape == (7, channels, *size)
        assert images.device.type == labels.device.type == device
        assert bits(images) == as_given(batch, places)
        assert labels.dtype == torch.int64
        assert labels.tolist() == [batch.labels[place] for place in places]


@pytest.mark.parametrize("device", DEVICES)
def test_guarantee_as_floats_undoes_as_bytes_to_the_bit(device: str) -> None:
    pixels = LEVELS.astype(np.float32) / np.float32(255)
    levels = as_bytes(pixels)
    assert levels is not None
    assert (levels == LEVELS).all()
    again = as_floats(torch.from_numpy(levels).to(device))
    assert bits(again) == pixels.tobytes()
    floats = torch.rand(3, generator=torch.Generator())
    assert as_floats(floats) is floats


@pytest.mark.parametrize(
    "value",
    [
        *(-0.0, -1 / 255, 256 / 255, 2.0, 1e-45, 0.5, 1e38, -1e38),
        *(np.inf, -np.inf, np.nan, np.nextafter(np.float32(1), np.float32(0))),
    ],
)
def test_what_is_not_of_bytes_is_not_taken_for_it(value: float) -> None:
    pixels = LEVELS.astype(np.float32) / np.float32(255)
    pixels[17] = value
    assert as_bytes(pixels) is None


def test_no_neighbour_of_a_byte_is_taken_for_it() -> None:
    pixels = LEVELS.astype(np.float32) / np.float32(255)
    for towards in (0, 2):
        for near in np.nextafter(pixels, np.float32(towards))[1:]:
            assert as_bytes(np.array([near])) is None


def test_rows_of_any_length(tmp_path: Path) -> None:
    images = stored(tmp_path / "x.npz", bytes_of(10, 1, 6, 6))
    held = Held(Reading.of(images, range(10), None), CPU)
    rows = torch.split(torch.arange(10), 4)
    assert [len(labels) for _, labels in held.batches(rows)] == [4, 4, 2]
    assert list(held.batches(torch.zeros(0, 4, dtype=torch.int64))) == []
    assert list(held.batches([])) == []
    empty, labels = next(held.batches(torch.zeros(1, 0, dtype=torch.int64)))
    assert empty.shape == (0, 1, 6, 6)
    assert labels.shape == (0,)


@pytest.mark.parametrize(
    "order",
    [
        torch.tensor([[0, 10]]),
        torch.tensor([[-1, 0]]),
        torch.tensor([0, 1]),
        torch.tensor([[0.0, 1.0]]),
        torch.zeros(1, 1, 1, dtype=torch.int64),
    ],
)
def test_an_order_of_other_images(order: torch.Tensor, tmp_path: Path) -> None:
    images = stored(tmp_path / "x.npz", bytes_of(10, 1, 6, 6))
    held = Held(Reading.of(images, range(10), None), CPU)
    with pytest.raises(InputError, match="the order is .*integers from 0 to 9"):
        next(held.batches(order))


@pytest.mark.parametrize("images", [bytes_of(4, 1, 6, 6), RNG.random((4, 1, 6, 6))])
def test_a_batch_can_be_written_to(images: NDArray[np.generic], tmp_path: Path) -> None:
    dataset = stored(tmp_path / "x.npz", images)
    held = Held(Reading.of(dataset, range(4), None), CPU)
    order = torch.tensor([[2, 1]])
    for batch, labels in held.batches(order):
        batch.zero_()
        labels.zero_()
    batch, labels = next(held.batches(order))
    assert bits(batch) == as_given(dataset, [2, 1])
    assert labels.tolist() == [2, 1]


def test_what_does_not_fit_is_refused() -> None:
    assert 2**20 < free_bytes(CPU) < 2**50
    check_room("the images", 2**20, CPU)
    with pytest.raises(InputError, match="the images is 1152921505 GB.*memory of cpu.*--hold no"):
        check_room("the images", 2**60, CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_the_host_does_not_wait_for_the_device(kind: str, tmp_path: Path) -> None:
    held = Held(Reading.of(made(kind, tmp_path), range(150), None), torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(held.batches(torch.arange(150).view(10, 15)))) == 10
    finally:
        torch.cuda.set_sync_debug_mode("default")
