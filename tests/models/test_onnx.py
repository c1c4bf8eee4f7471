"""ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_files import same, scores, some_images
from torch import Tensor, nn

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, ModelError
from deformrs.models import check_fixed, load_model
from deformrs.runs.files import file_digest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

MATRIX = np.random.default_rng(0).normal(size=(3 * 8 * 8, 5)).astype(np.float32)


class Linear(nn.Module):
    """What the files below compute."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ torch.from_numpy(MATRIX)


def write(
    path: Path,
    shape: tuple[int | str, ...] = ("n", 3, 8, 8),
    *,
    outputs: int = 1,
    kind: int = onnx.TensorProto.FLOAT,
    before: str = "Identity",
    **options: Any,
) -> Path:
    """images -> `before` -> flatten -> times a matrix, as an ONNX file."""
    helper = onnx.helper
    names = [f"y{number}" for number in range(outputs)]
    nodes = [
        helper.make_node(before, ["x"], ["z"]),
        helper.make_node("Flatten", ["z"], ["f"], axis=1),
        *[helper.make_node("MatMul", ["f", "w"], [name]) for name in names],
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, kind, [shape[0], 5]) for name in names],
        [onnx.numpy_helper.from_array(MATRIX.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, **options)
    return path


def test_any_batch_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.onnx")
    loaded = load_model(str(path), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))
    for number in (1, 3, 8):
        images = some_images(number, side=8)
        mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.2, 0.1])
        normalised = (images - mean[:, None, None]) / std[:, None, None]
        same(loaded, Linear(), images, normalised)
    assert loaded.preparation == Preparation(crop=(8, 8), channels=3)
    assert loaded.about["files"] == {"a.onnx": file_digest(path)}
    check_fixed(loaded.module, some_images(side=8))


def test_a_fixed_batch_size_is_padded(tmp_path: Path) -> None:
    loaded = load_model(str(write(tmp_path / "a.onnx", (3, 3, 8, 8))))
    for number in (1, 3, 7):
        images = some_images(number, side=8)
        same(loaded, Linear(), images, images)


def test_any_size_of_image_sets_no_crop(tmp_path: Path) -> None:
    loaded = load_model(str(write(tmp_path / "a.onnx", ("n", 3, "h", "w"))))
    assert loaded.preparation == Preparation(channels=3)


def test_half_precision_inside_the_file(tmp_path: Path) -> None:
    loaded = load_model(str(write(tmp_path / "a.onnx", kind=onnx.TensorProto.FLOAT16)))
    images = some_images(side=8)
    got = scores(loaded.module, images)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, scores(Linear(), images), rtol=0.02, atol=0.05)


def test_external_weights_are_in_the_digests(tmp_path: Path) -> None:
    stored: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0}
    path = write(tmp_path / "a.onnx", **stored, location="a.onnx.data")
    (tmp_path / "other.data").write_text("not of this model")
    loaded = load_model(str(path))
    images = some_images(side=8)
    same(loaded, Linear(), images, images)
    names = ("a.onnx", "a.onnx.data")
    assert loaded.about["files"] == {name: file_digest(tmp_path / name) for name in names}
    long = "weights-" + 150 * "x"
    loaded = load_model(str(write(tmp_path / "b.onnx", **stored, location=long)))
    assert loaded.about["files"].keys() == {"b.onnx", long}  # type: ignore[union-attr]


def test_random_numbers_are_refused_by_check_fixed(tmp_path: Path) -> None:
    loaded = load_model(str(write(tmp_path / "a.onnx", before="RandomUniformLike")))
    with pytest.raises(ModelError, match="a certificate needs a fixed model"):
        check_fixed(loaded.module, some_images(side=8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": 2}, "of 1 inputs and 2 outputs"),
        ({"shape": ("n", 8, 8, 3)}, "must be for float images N x C x H x W"),
        ({"shape": ("n", 192)}, "must be for float images N x C x H x W"),
        ({"kind": onnx.TensorProto.DOUBLE}, "tensor.double."),
    ],
)
def test_other_inputs_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(str(write(tmp_path / "a.onnx", **options)))


def test_an_image_of_another_size_is_one_line(tmp_path: Path) -> None:
    loaded = load_model(str(write(tmp_path / "a.onnx")))
    with pytest.raises(ModelError, match=r"must be logits for images of shape \(2, 3, 9, 9\)") as e:
        scores(loaded.module, some_images(2, side=9))
    assert "\n" not in str(e.value)


def test_another_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="precision is 'float16'; it cannot be chosen"):
        load_model(str(write(tmp_path / "a.onnx")), precision="float16")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 64])
def test_broken_files_are_one_line(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(InputError, match="the ONNX file .*a.onnx is") as caught:
        load_model(str(tmp_path / "a.onnx"))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the ONNX file .*a.onnx is missing"):
        load_model(str(tmp_path / "a.onnx"))
    path = tmp_path / "b.onnx"
    write(path, save_as_external_data=True, size_threshold=0, location="b.data")
    (tmp_path / "b.data").unlink()
    with pytest.raises(InputError, match="the ONNX file .*b.onnx is unreadable") as caught:
        load_model(str(tmp_path / "b.onnx"))
    assert "\n" not in str(caught.value)
