"""Images streamed by worker processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import (
    CPU,
    Deadly,
    Failing,
    OneThread,
    Slow,
    as_given,
    bits,
    bytes_of,
    damage,
    photographs,
    stored,
)

from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.training.images import Labelled, Reading, Streamed, source_for

SQUARE = Preparation(resize=40, crop=(32, 36))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def workers() -> set[int]:
    return {child.pid or 0 for child in multiprocessing.active_children()}


@pytest.fixture(autouse=True)
def _no_process_is_left_over() -> Iterator[None]:
    assert not workers()
    yield
    assert not workers()


def use_badly(batches: Iterator[object]) -> None:
    for place, _ in enumerate(batches):
        place / 0


def streamed(images: Labelled, count: int, device: str = "cpu") -> Streamed:
    reading = Reading.of(images, range(len(images)), None)
    return Streamed(reading, torch.device(device), workers=count)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_guarantee_streamed_gives_the_pixels_of_the_set(
    count: int, device: str, tmp_path: Path
) -> None:
    """Streamed: two epochs in orders of their own, with the same processes."""
    batch = load_data(photographs(tmp_path / "x"), SQUARE)
    chosen = np.array([11, 0, 3, 7, 6, 2, 1, 10])
    source = Streamed(Reading.of(batch, chosen, 2), torch.device(device), workers=count)
    assert len(source) == 8
    assert (source.channels, source.size) == (3, (32, 36))
    alive = []
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randint(8, (9, 3), generator=generator)
        for row, (images, labels) in zip(order, source.batches(order), strict=True):
            places = chosen[row].tolist()
            assert bits(images) == as_given(batch, places)
            assert labels.tolist() == [batch.labels[place] for place in places]
            assert images.device.type == labels.device.type == device
        alive.append(workers())
    assert len(alive[0]) == count
    assert alive[0] == alive[1]
    source.close()
    assert not workers()
    assert len(list(source.batches(order))) == 9  # they begin anew
    source.close()


def test_floats_among_bytes(tmp_path: Path) -> None:
    images = bytes_of(6, 1, 5, 6) / np.float32(255)
    images[4] = 0.3
    batch = stored(tmp_path / "x.npz", images)
    source = streamed(batch, 2)
    rows = torch.split(torch.tensor([0, 1, 4, 3, 2, 5, 4]), 2)
    found = [bits(batch) for batch, _ in source.batches(rows)]
    assert found == [as_given(batch, row.tolist()) for row in rows]
    source.close()


def test_global_randomness_is_left_alone(tmp_path: Path) -> None:
    source = streamed(stored(tmp_path / "x.npz", bytes_of(6, 1, 5, 6)), 2)
    state, drawn = torch.get_rng_state(), random.getstate()
    for _ in range(2):
        list(source.batches(torch.arange(6).view(3, 2)))
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == drawn
    source.close()


def test_a_worker_has_one_thread() -> None:
    source = streamed(OneThread(2), 2)
    (batch, _), *_ = source.batches(torch.tensor([[0, 1], [1, 0]]))
    assert (batch * 255).flatten().tolist() == [1.0] * 8
    source.close()


def test_leaving_early_ends_the_workers(tmp_path: Path) -> None:
    source = streamed(stored(tmp_path / "x.npz", bytes_of(60, 1, 5, 6)), 2)
    order = torch.arange(60).view(30, 2)
    for _ in source.batches(order):
        assert len(workers()) == 2
        break
    assert not workers()

    with pytest.raises(ZeroDivisionError):
        use_badly(source.batches(order))
    assert not workers()
    batches = source.batches(order)
    next(batches)
    with pytest.raises(InputError, match="being read already"):
        next(source.batches(order))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not workers()
    list(source.batches(order))
    assert len(workers()) == 2
    del source
    assert not workers()


def test_ctrl_c_ends_the_workers() -> None:
    batches = streamed(Slow(6, 1.0), 2).batches(torch.tensor([[0], [1], [2], [3]]))
    next(batches)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        list(batches)
    assert not workers()
    del caught


@pytest.mark.parametrize("count", [0, 2])
def test_a_damaged_image_is_named(count: int, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "x")
    path = damage(folder / "dog" / "3.jpg")
    source = streamed(load_data(folder, SQUARE), count)
    seen: list[int] = []
    with pytest.raises(InputError) as caught:
        seen.extend(len(labels) for _, labels in source.batches(torch.arange(12).view(6, 2)))
    assert seen == [2] * 4
    assert str(caught.value).startswith(f"the image {path} is damaged (")
    assert "\n" not in str(caught.value)
    assert not workers()


@pytest.mark.parametrize("count", [0, 2])
def test_a_fault_of_the_set_is_named(count: int) -> None:
    with pytest.raises(InputError) as caught:
        list(streamed(Failing(6), count).batches(torch.arange(6).view(3, 2)))
    assert str(caught.value) == (
        "frame 3 is not readable (KeyError: 'no\\nsuch key'); it must be an image with its label: "
        "fix it, or leave it out"
    )


@pytest.mark.parametrize("count", [0, 2])
def test_another_size_is_named_when_it_comes(count: int, tmp_path: Path) -> None:
    images = load_data(photographs(tmp_path / "x", sides=(40, 40, 40, 40, 48)))
    with pytest.raises(InputError, match=r"cat/4.jpg is of 50 x 48 px.*50 x 40.*cat/0.jpg"):
        list(streamed(images, count).batches(torch.arange(12).view(6, 2)))


def test_a_worker_that_is_killed() -> None:
    with pytest.raises(InputError, match="a process that reads images is gone.*--workers 0"):
        list(streamed(Deadly(6), 2).batches(torch.arange(6).view(3, 2)))
    assert not workers()


def test_a_set_that_cannot_be_sent() -> None:
    class Here(OneThread):
        pass

    with pytest.raises(InputError, match="the set of images is not to be sent.*--workers 0"):
        list(streamed(Here(2), 2).batches(torch.tensor([[0, 1]])))
    source = source_for(Here(2), [0, 1], CPU, hold="no")
    assert source.words == "2 images streamed by the main process"
    assert len(list(source.batches(torch.tensor([[0, 1]])))) == 1


STREAMING = """
import multiprocessing, torch
from picture_sets import Slow
from deformrs.training.images import source_for

source = source_for(Slow(1000, 0.01), range(1000), torch.device("cpu"), hold="no", workers=2)
for _ in source.batches(torch.arange(1000).view(-1, 2)):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
"""


def is_running(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(found.stdout.strip(" \nZ"))


def test_workers_end_with_a_process_that_is_killed() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [sys.executable, "-c", STREAMING], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
