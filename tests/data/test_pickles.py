"""Pickles are read without running anything in them."""

from __future__ import annotations

import builtins
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deformrs.data.cifar10 import read_plain_pickle, read_python_batch
from deformrs.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_guarantee_read_plain_pickle_and_read_python_batch_run_nothing(
    tmp_path: Path, protocol: int
) -> None:
    mark = tmp_path / "was-here"
    hostile = [
        Calls(os.system, f"touch {mark}"),
        Calls(os.mkdir, str(mark)),
        Calls(builtins.eval, f"open({str(mark)!r}, 'w')"),
        Calls(builtins.getattr, "x", "upper"),
        Calls(subprocess.check_call, ["touch", str(mark)]),
        Calls(np.load, str(mark), None, True),
    ]
    for call in hostile:
        for content in (call, {b"data": call, b"labels": [0]}, {call: 1} if protocol else [call]):
            data = pickle.dumps(content, protocol)
            for reader in (read_plain_pickle, read_python_batch):
                with pytest.raises(InputError, match="a pickle is not readable .it asks for"):
                    reader(data)
                assert not mark.exists()
    # The proof that the test could fail: the same bytes do it when they are believed.
    pickle.loads(pickle.dumps(hostile[1], protocol))
    assert mark.exists()


def test_byte_arrays_lists_and_text_come_through() -> None:
    content = {b"data": IMAGES, b"labels": [3, 9], b"batch_label": b"one"}
    for protocol in (3, 4):
        found = read_plain_pickle(pickle.dumps(content, protocol))
        assert np.array_equal(found[b"data"], IMAGES)  # type: ignore[arg-type]
        assert found[b"labels"] == [3, 9]
        images, labels = read_python_batch(pickle.dumps(content, protocol))
        assert images.shape == (2, 3, 32, 32)
        assert np.array_equal(images[1].ravel(), IMAGES[1])
        assert labels.tolist() == [3, 9]


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {},
        {b"data": IMAGES},
        {b"data": IMAGES, b"labels": [1]},
        {b"data": IMAGES, b"labels": [1, 2.5]},
        {b"data": IMAGES[:, :9], b"labels": [1, 2]},
        {b"data": IMAGES.astype(np.int64), b"labels": [1, 2]},
        {b"data": np.array([None, None]), b"labels": [1, 2]},
        {b"data": np.asfortranarray(IMAGES), b"labels": [1, 2]},
    ],
)
def test_other_content_is_refused(content: object) -> None:
    with pytest.raises(InputError):
        read_python_batch(pickle.dumps(content, 4))


def test_broken_pickles_are_refused() -> None:
    whole = pickle.dumps({b"data": IMAGES, b"labels": [3, 9]}, 4)
    for data in (b"", whole[:50], whole[:-1], b"\x80\x04K\x01b.", b"garbage", b"\x80\x04\x85."):
        with pytest.raises(InputError, match="a pickle is"):
            read_plain_pickle(data)
