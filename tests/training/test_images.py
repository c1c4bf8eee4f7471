"""Images held on the device or streamed by workers: exact pixels, errors that name the image."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deformrs.data import ImageSet, load_data
from deformrs.data.preparation import Pixels, Preparation
from deformrs.errors import InputError, ModelError
from deformrs.training.images import (
    Held,
    Reader,
    Streamed,
    as_bytes,
    as_floats,
    check_room,
    framed,
    free_bytes,
    gather,
    normalisation_of,
    source_for,
    usable_cores,
)

CPU = torch.device("cpu")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
RANDOM = np.random.default_rng(0)
LEVELS = np.arange(256, dtype=np.uint8)
SQUARE = Preparation(resize=40, crop=(32, 36))


def random_bytes(n: int, *shape: int) -> NDArray[np.uint8]:
    return RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8)


def stored(path: Path, images: NDArray[np.generic]) -> ImageSet:
    """Store images in an .npz file, labelled 0, 1, 2, 0, 1, 2, ..."""
    np.savez(path, images=images, labels=np.arange(len(images)) % 3)
    return load_data(path)


def photographs(folder: Path, sides: Sequence[int] = (40, 56, 48)) -> Path:
    """Write six JPEG files of each of two classes, with sides that differ."""
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            image = Image.fromarray(random_bytes(1, 9, 7, 3)[0])
            image.resize((sides[number % len(sides)], 50)).save(folder / name / f"{number}.jpg")
    return folder


def damage(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-40])
    return path


def bits(batch: Tensor) -> bytes:
    assert batch.dtype == torch.float32
    return batch.cpu().numpy().tobytes()


def bits_of(images: ImageSet, indices: Sequence[int]) -> bytes:
    return b"".join(images[index][0].tobytes() for index in indices)


def rows_of(count: int, size: int) -> tuple[Tensor, ...]:
    return torch.split(torch.arange(count), size)


def streamed(images: ImageSet, workers: int, device: str = "cpu") -> Streamed:
    return Streamed(Reader(images, range(len(images))), torch.device(device), workers)


KINDS = {
    "bytes": 1,
    "floats": 4,
    "floats of bytes": 1,
    "bytes, then floats": 4,
    "floats, then bytes": 4,
    "files": 1,
}


def made(kind: str, folder: Path) -> ImageSet:
    """Return a set of that kind, of which arrays are read in several goes."""
    exact = random_bytes(150, 1, 128, 128)
    floats = RANDOM.random((150, 1, 128, 128), dtype=np.float32)
    if kind == "files":
        preparation = Preparation(resize=40, crop=(32, 36), interpolation="bicubic")
        return load_data(photographs(folder / "photographs"), preparation)
    images: NDArray[np.generic] = exact / np.float32(255)
    if kind == "bytes":
        images = exact
    elif kind == "floats":
        images = floats
    elif kind == "bytes, then floats":
        images[140:] = floats[140:]
    elif kind == "floats, then bytes":
        images[:2] = floats[:2]
    return stored(folder / "x.npz", images)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_held_has_the_pixels_of_the_dataset(
    kind: str, device: str, tmp_path: Path
) -> None:
    images = made(kind, tmp_path)
    chosen = RANDOM.permutation(len(images))[: len(images) - 2]
    counts: list[int] = []
    source = source_for(images, chosen, torch.device(device), workers=0, progress=counts.append)
    assert isinstance(source, Held)
    assert len(source) == len(chosen) == counts[-1]
    assert counts == sorted(set(counts))
    channels, *size = images[0][0].shape
    assert (source.channels, source.size) == (channels, tuple(size))
    assert source._images.nbytes == len(chosen) * images[0][0].size * KINDS[kind]
    rows = torch.from_numpy(RANDOM.integers(0, len(chosen), (5, 7))).unbind()
    for row, (batch, labels) in zip(rows, source.batches(rows), strict=True):
        indices = chosen[row].tolist()
        assert batch.shape == (7, channels, *size)
        assert batch.device.type == labels.device.type == device
        assert bits(batch) == bits_of(images, indices)
        assert labels.tolist() == [images.labels[index] for index in indices]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_guarantee_streamed_has_the_pixels_of_the_dataset(
    workers: int, device: str, tmp_path: Path
) -> None:
    """Streamed: two epochs in orders of their own; global random state is left alone."""
    images = load_data(photographs(tmp_path / "x"), SQUARE)
    chosen = np.array([11, 0, 3, 7, 6, 2, 1, 10])
    source = Streamed(Reader(images, chosen), torch.device(device), workers)
    assert len(source) == 8
    assert (source.channels, source.size) == (3, (32, 36))
    state, drawn = torch.get_rng_state(), random.getstate()
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(8, (5, 3), generator=generator).unbind()
        for row, (batch, labels) in zip(rows, source.batches(rows), strict=True):
            indices = chosen[row].tolist()
            assert bits(batch) == bits_of(images, indices)
            assert labels.tolist() == [images.labels[index] for index in indices]
            assert batch.device.type == labels.device.type == device
        assert not multiprocessing.active_children()
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == drawn


def test_a_stream_may_mix_bytes_and_floats(tmp_path: Path) -> None:
    pixels = random_bytes(6, 1, 5, 6) / np.float32(255)
    pixels[4] = 0.3
    images = stored(tmp_path / "x.npz", pixels)
    rows = torch.split(torch.tensor([0, 1, 4, 3, 2, 5, 4]), 2)
    batches = [bits(batch) for batch, _ in streamed(images, 2).batches(rows)]
    assert batches == [bits_of(images, row.tolist()) for row in rows]


def test_leaving_a_stream_early_ends_its_workers(tmp_path: Path) -> None:
    batches = streamed(stored(tmp_path / "x.npz", random_bytes(60, 1, 5, 6)), 2).batches(
        rows_of(60, 2)
    )
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    del batches
    assert not multiprocessing.active_children()


class Faulty(ImageSet):
    """Its last image kills the process that reads it; the others show its signal handlers."""

    def source(self, index: int) -> str:
        return f"frame {index}"

    def _load(self, index: int) -> Pixels:
        if index == len(self) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        ends = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        return np.full((1, 2, 2), ignored and ends and torch.get_num_threads() == 1, np.float32)


def test_workers_leave_signals_to_the_main_process_and_a_dead_one_is_reported() -> None:
    faulty = Faulty("faulty", None, (0, 1) * 4, {}, Preparation())
    batches = streamed(faulty, 2).batches(rows_of(8, 1))
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert next(batches)[0].min() == 1
        with pytest.raises(ModelError, match="a worker that reads images is gone.*--workers 0"):
            list(batches)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("hold", [True, False])
def test_a_damaged_image_is_named_in_one_line(hold: bool, workers: int, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x")
    path = damage(folder / "dog" / "3.jpg")
    images = load_data(folder, SQUARE)

    def read() -> None:
        reader = Reader(images, range(12))
        if hold:
            gather(reader, CPU, workers)
        else:
            list(Streamed(reader, CPU, workers).batches(rows_of(12, 2)))

    with pytest.raises(InputError) as caught:
        read()
    assert str(caught.value).startswith(f"the image {path} is damaged (")
    assert "\n" not in str(caught.value)
    assert len(source_for(images, range(6), CPU)) == 6


@pytest.mark.parametrize("hold", [True, False])
def test_images_of_different_size_or_colour_are_named(hold: bool, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x", sides=(40,))
    Image.fromarray(random_bytes(1, 50, 40)[0]).save(folder / "cat" / "2.png")

    def read(preparation: Preparation | None = None) -> None:
        images = load_data(folder, preparation)
        source = source_for(images, range(13), CPU, workers=0) if hold else streamed(images, 0)
        list(source.batches(rows_of(13, 4)))

    with pytest.raises(InputError, match=r"cat/2.png is of 1 channel.*cat/0.jpg.*--channels 3"):
        read()
    with pytest.raises(InputError, match=r"cat/2.png is of 1 channel.*like others.*--channels 3"):
        normalisation_of(load_data(folder), np.arange(13))
    read(Preparation(channels=3))
    Image.fromarray(random_bytes(1, 50, 41)[0]).save(folder / "cat" / "2.png")
    with pytest.raises(InputError, match=r"cat/2.png is of 50 x 41 px; .* 50 x 40 px like"):
        read(Preparation(channels=3))


def test_what_fits_is_held_and_what_does_not_is_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = load_data("digits", split="train")
    source = source_for(digits, np.arange(1, 4000, 2), CPU)
    assert source.description == "2,000 images held on cpu (1.6 MB)"
    folder = load_data(photographs(tmp_path / "x"), SQUARE)
    monkeypatch.setattr("deformrs.training.images.free_bytes", lambda _: 4 * 4000 * 784)
    assert isinstance(source_for(digits, range(4000), CPU), Held)
    monkeypatch.setattr("deformrs.training.images.free_bytes", lambda _: 4 * 4000 * 784 - 1)
    described = source_for(digits, range(4000), CPU).description
    assert described == "4,000 images streamed by the main process"
    cores = min(32, usable_cores())
    monkeypatch.setattr("deformrs.training.images.free_bytes", lambda _: 1000)
    described = source_for(folder, range(12), CPU).description
    assert described == f"12 images streamed by {cores} worker" + "s" * (cores > 1)
    with pytest.raises(InputError, match="the 12 images is 41 kB.*cpu.*free some memory"):
        gather(Reader(folder, range(12)), CPU)


def test_memory_is_measured() -> None:
    assert 2**20 < free_bytes(CPU) < 2**50
    check_room("the images", 2**20, CPU)
    with pytest.raises(InputError, match="the images is 1152921505 GB.*cpu.*free some memory"):
        check_room("the images", 2**60, CPU)


def test_bad_options_and_data_are_refused(tmp_path: Path) -> None:
    images = stored(tmp_path / "x.npz", random_bytes(9, 3, 5, 6))
    with pytest.raises(InputError, match="workers is -1"):
        source_for(images, range(3), CPU, workers=-1)
    with pytest.raises(InputError, match="the data is without images"):
        source_for(images, [], CPU)
    np.savez(tmp_path / "one.npz", images=random_bytes(3, 3, 5, 6), labels=np.full(3, 2))
    with pytest.raises(InputError, match="the data is of one class, 2; it must have at least two"):
        source_for(load_data(tmp_path / "one.npz"), range(3), CPU)
    # All labels count, not only the chosen: a part that is held out may be of one class.
    assert len(source_for(images, [1], CPU)) == 1


def test_rows_may_have_any_length_and_batches_may_be_changed(tmp_path: Path) -> None:
    images = stored(tmp_path / "x.npz", random_bytes(10, 1, 6, 6))
    source = source_for(images, range(10), CPU)
    for batch, labels in source.batches(rows_of(10, 4)):
        batch.zero_()
        labels.zero_()
    again = list(source.batches(rows_of(10, 4)))
    assert [len(labels) for _, labels in again] == [4, 4, 2]
    assert b"".join(bits(batch) for batch, _ in again) == bits_of(images, range(10))
    assert list(source.batches([])) == []


@pytest.mark.parametrize("device", DEVICES)
def test_guarantee_as_floats_undoes_as_bytes_to_the_bit(device: str) -> None:
    pixels = LEVELS.astype(np.float32) / np.float32(255)
    levels = as_bytes(pixels)
    assert levels is not None
    assert (levels == LEVELS).all()
    assert bits(as_floats(torch.from_numpy(levels).to(device))) == pixels.tobytes()
    floats = torch.rand(3, generator=torch.Generator())
    assert as_floats(floats) is floats


@pytest.mark.parametrize(
    "value",
    [
        *(-0.0, -1 / 255, 256 / 255, 2.0, 1e-45, 0.5, 1e38, -1e38),
        *(np.inf, -np.inf, np.nan, np.nextafter(np.float32(1), np.float32(0))),
    ],
)
def test_other_floats_are_not_taken_for_bytes(value: float) -> None:
    pixels = LEVELS.astype(np.float32) / np.float32(255)
    for towards in (0, 2):
        for near in np.nextafter(pixels, np.float32(towards))[1:]:
            assert as_bytes(np.array([near])) is None
    pixels[17] = value
    assert as_bytes(pixels) is None


@pytest.mark.parametrize(
    ("given", "crop"),
    [
        (Preparation(resize=256, crop=(224, 224), channels=3), (256, 256)),
        (Preparation(resize=64, crop=(64, 48), interpolation="bicubic"), (64, 64)),
        (Preparation(resize=32, crop=(28, 40)), (28, 40)),
        (Preparation(resize=(40, 60), crop=(32, 32)), (32, 32)),
        (Preparation(crop=(32, 32)), (32, 32)),
        (Preparation(resize=32), None),
    ],
)
def test_the_frame_of_random_crops(given: Preparation, crop: tuple[int, int] | None) -> None:
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
    assert frame[0][0].shape[1:] == (36, 36)
    for (small, _), (large, _) in zip(cut, frame, strict=True):
        # The middle of a middle may be a pixel aside if a length is odd.
        centres = [
            large[:, 3 + down : 33 + down, 3 + right : 33 + right]
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
        ]
        assert any(np.array_equal(small, centre) for centre in centres)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_the_host_does_not_wait_for_the_device(kind: str, tmp_path: Path) -> None:
    held = source_for(made(kind, tmp_path), range(150), torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(held.batches(rows_of(150, 15)))) == 10
    finally:
        torch.cuda.set_sync_debug_mode("default")
