"""Images in .npz files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

BYTES = np.random.default_rng(0).integers(0, 256, (4, 5, 7, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 1])
AS_STORED = Preparation()
EXPECTED = BYTES.transpose(0, 3, 1, 2).astype(np.float32) / 255


@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y"), ("x_test", "y_test")])
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (BYTES, EXPECTED),
        (BYTES.transpose(0, 3, 1, 2), EXPECTED),
        (BYTES[..., 0], EXPECTED[:, :1]),
        (EXPECTED, EXPECTED),
        (EXPECTED.astype(np.float64), EXPECTED),
        (
            np.concatenate([BYTES, BYTES[..., :1]], 3),
            np.concatenate([EXPECTED, EXPECTED[:, :1]], 1),
        ),
    ],
    ids=["nhwc", "nchw", "nhw", "float32", "float64", "four channels"],
)
def test_array_layouts(
    tmp_path: Path,
    keys: tuple[str, str],
    images: NDArray[np.generic],
    expected: NDArray[np.float32],
) -> None:
    np.savez(tmp_path / "mine.npz", **{keys[0]: images, keys[1]: LABELS})  # type: ignore[arg-type]
    batch = load_data(str(tmp_path / "mine.npz"), AS_STORED, num_classes=3)
    assert batch.labels == (2, 0, 1, 1)
    assert all(type(label) is int for label in batch.labels)
    assert batch.name == "mine.npz"
    assert batch.about["split"] == ("test" if keys[0] == "x_test" else None)
    assert batch.source(1).startswith("mine.npz")
    for index, image in enumerate(expected):
        assert np.allclose(batch[index][0], image, rtol=0, atol=1e-7)
        assert batch[index][0].dtype == np.float32


def test_the_split_chooses_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "both.npz"
    np.savez(path, x_train=BYTES, y_train=LABELS[:, None], x_test=BYTES[:2], y_test=LABELS[:2])
    test = load_data(str(path), AS_STORED)
    train = load_data(str(path), AS_STORED, split="train")
    assert (len(test), len(train)) == (2, 4)
    assert (test.source(1), train.source(1)) == ("both.npz test 1", "both.npz train 1")
    assert test.about["sha256"] != train.about["sha256"]


def test_integer_labels_stored_as_floats(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", images=BYTES, labels=LABELS.astype(np.float32))
    assert load_data(str(tmp_path / "f.npz"), AS_STORED).labels == (2, 0, 1, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": BYTES, "labels": LABELS}, "is 'pictures', 'labels'; it must be one pair"),
        ({}, "the arrays in a.npz is none"),
        ({"images": BYTES, "labels": LABELS, "x": BYTES, "y": LABELS}, "must be one pair"),
        ({"images": BYTES[0, 0], "labels": LABELS}, r"of shape \(7, 3\)"),
        ({"images": BYTES[:, :3], "labels": LABELS}, r"\(4, 3, 7, 3\).*unambiguously"),
        ({"images": np.zeros((4, 9, 9, 9), np.uint8), "labels": LABELS}, "1, 3 or 4 channels"),
        ({"images": np.zeros((4, 0, 9), np.uint8), "labels": LABELS}, "must have pixels"),
        ({"images": BYTES.astype(np.int32), "labels": LABELS}, "is of int32; .*uint8"),
        ({"images": BYTES > 9, "labels": LABELS}, "is of bool; .*uint8"),
        ({"images": BYTES.astype(np.float32), "labels": LABELS}, r"and 255; it must lie in \[0, 1"),
        ({"images": EXPECTED - 0.1, "labels": LABELS}, r"between -0.1 and .*\[0, 1"),
        ({"images": np.full((4, 3, 3), np.nan), "labels": LABELS}, r"nan; it must lie in \[0, 1"),
        ({"images": BYTES, "labels": LABELS[:3]}, "'labels' in a.npz is of 3; .* which are 4"),
        ({"images": BYTES[:0], "labels": LABELS[:0]}, "at least one"),
        ({"images": BYTES, "labels": np.eye(4)}, "one integer per image: .*argmax"),
        ({"images": BYTES, "labels": np.array(list("abcd"))}, "one integer per image"),
        ({"images": BYTES, "labels": LABELS + 0.5}, "label of a.npz 0 is 2.5; .*integer"),
        ({"images": BYTES, "labels": np.array([0, 1, np.nan, 0])}, "a.npz 2 is nan"),
        ({"images": BYTES, "labels": LABELS - 1}, "label of a.npz 1 is -1; .*0 to 2"),
        ({"images": BYTES, "labels": LABELS + 1}, "label of a.npz 0 is 3; .*0 to 2"),
        ({"images": BYTES, "labels": np.array([None] * 4)}, "not readable .*plain arrays"),
    ],
)
def test_bad_arrays_are_refused(
    tmp_path: Path, arrays: dict[str, NDArray[np.generic]], message: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message) as refusal:
        load_data(str(tmp_path / "a.npz"), AS_STORED, num_classes=3)
    assert "\n" not in str(refusal.value)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=BYTES, labels=LABELS)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 255
    for damaged in (whole[: len(whole) // 2], bytes(flipped), b"", b"no zip at all"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="a.npz is not readable"):
            load_data(str(path), AS_STORED)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", b"no array")
        file.writestr("labels.npy", b"no array")
    with pytest.raises(InputError, match="a.npz is not readable .'images' in it is no array"):
        load_data(str(path), AS_STORED)
    np.save(tmp_path / "single.npy", BYTES)
    (tmp_path / "single.npy").rename(path)
    with pytest.raises(InputError, match="a.npz is not readable .it is no zip file"):
        load_data(str(path), AS_STORED)
