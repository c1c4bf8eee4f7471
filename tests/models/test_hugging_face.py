"""Image classifiers of Hugging Face, small and random, in real folders."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from small_files import scores, some_images

import torchvision_ops
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError, UnsupportedError
from deformrs.models import check_fixed, load_model
from deformrs.models.hugging_face import read_processor
from deformrs.runs.files import file_digest

torchvision_ops.declare()
transformers = pytest.importorskip("transformers")

PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.25, 0.2],
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 16, "width": 16},
}


def vit(labels: dict[int, str] | None = None) -> Any:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        hidden_dropout_prob=0.5,
        **({"num_labels": 3} if labels is None else {"id2label": labels}),
    )
    return transformers.ViTForImageClassification(config).eval()


@pytest.fixture(autouse=True)
def _quiet(capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.disable_progress_bar()  # for what the tests themselves save


def save(folder: Path, net: Any, processor: dict[str, Any] | None = PROCESSOR) -> Path:
    net.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def test_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.enable_progress_bar()
    net = vit({0: "cat", 1: "dog", 2: "bird"})
    save(tmp_path, net)
    capfd.readouterr()
    loaded = load_model(f"hf:{tmp_path}")
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("transformers").level != logging.CRITICAL
    assert transformers.utils.logging.is_progress_bar_enabled()
    images = some_images()
    mean, std = (torch.tensor(PROCESSOR[key])[:, None, None] for key in ("image_mean", "image_std"))
    with torch.inference_mode():
        want = net((images - mean) / std).logits
    torch.testing.assert_close(scores(loaded.module, images), want)
    check_fixed(loaded.module, images)
    assert loaded.preparation == Preparation((16, 16), None, "bicubic", 3)
    assert loaded.class_names == ("cat", "dog", "bird")
    names = ("config.json", "model.safetensors", "preprocessor_config.json")
    assert loaded.about["files"] == {name: file_digest(tmp_path / name) for name in names}
    assert loaded.about["transformers"] == transformers.__version__


def test_a_convolutional_one(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    net = transformers.ResNetForImageClassification(config).eval()
    processor = PROCESSOR | {"image_processor_type": "ConvNextImageProcessor", "crop_pct": 0.875}
    save(tmp_path, net, processor | {"size": {"shortest_edge": 224}})
    loaded = load_model(f"hf:{tmp_path}", mean=(0.5,), std=(0.5,))
    images = some_images(side=32)
    with torch.inference_mode():
        want = net((images - 0.5) / 0.5).logits
    torch.testing.assert_close(scores(loaded.module, images), want, rtol=1e-4, atol=1e-5)
    assert loaded.preparation == Preparation(256, (224, 224), "bicubic", 3)
    assert loaded.class_names is None  # LABEL_0, LABEL_1 ... are no names


def test_weights_in_half_precision_run_in_the_requested_precision(tmp_path: Path) -> None:
    save(tmp_path, vit().to(torch.bfloat16))
    loaded = load_model(f"hf:{tmp_path}")
    assert {part.dtype for part in loaded.module.parameters()} == {torch.float32}


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    save(tmp_path, vit())
    torch.save(vit().state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="must be an image classifier with safetensors weights"):
        load_model(f"hf:{tmp_path}")


def test_code_next_to_the_weights_is_never_run(tmp_path: Path) -> None:
    """Nor is there a prompt at the terminal whether to run it."""
    save(tmp_path, vit())
    code = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    (tmp_path / "evil.py").write_text(code + "class Config: pass\nclass Model: pass\n")
    config = json.loads((tmp_path / "config.json").read_text())
    named = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Model"}
    config |= {"model_type": "evil", "auto_map": named}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="the model hf:.* is not loaded"):
        load_model(f"hf:{tmp_path}")
    assert not (tmp_path / "ran").exists()


def test_a_network_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    save(tmp_path, vit().vit)
    with pytest.raises(InputError, match="without 'classifier.bias' .2 keys in all."):
        load_model(f"hf:{tmp_path}")


def test_missing_and_broken_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder /nowhere/at/all is missing"):
        load_model("hf:/nowhere/at/all")
    folder = save(tmp_path / "a", vit(), None)
    with pytest.raises(InputError, match="the model hf:.* is not loaded") as caught:
        load_model(f"hf:{folder}")
    assert "\n" not in str(caught.value)
    given = load_model(f"hf:{folder}", preparation=Preparation(resize=16), mean=(0.5,), std=(0.5,))
    assert given.preparation == Preparation(16, None, "bilinear", 3)
    for name in ("config.json", "model.safetensors"):
        folder = save(tmp_path / f"without_{name}", vit())
        (folder / name).write_bytes(b"broken")
        with pytest.raises(InputError, match="the model hf:.* is not loaded") as caught:
            load_model(f"hf:{folder}")
        assert "\n" not in str(caught.value)
        (folder / name).unlink()
        with pytest.raises(InputError, match="the model hf:.* is not loaded") as caught:
            load_model(f"hf:{folder}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ((16, 16), None, "bicubic")),
        ({"size": 20}, ((20, 20), None, "bicubic")),
        ({"size": [20, 30]}, ((20, 30), None, "bicubic")),
        ({"resample": 2, "do_center_crop": False, "crop_size": 8}, ((16, 16), None, "bilinear")),
        ({"do_center_crop": True, "crop_size": 8}, ((16, 16), (8, 8), "bicubic")),
        ({"do_resize": False}, (None, None, "bicubic")),
        ({"image_processor_type": "CLIPImageProcessorFast", "size": 20}, (20, None, "bicubic")),
        (
            {
                "image_processor_type": "BitImageProcessor",
                "size": {"shortest_edge": 32},
                "do_center_crop": True,
                "crop_size": {"height": 24, "width": 20},
            },
            (32, (24, 20), "bicubic"),
        ),
        (
            {"image_processor_type": None, "feature_extractor_type": "ConvNextFeatureExtractor"}
            | {"size": 224, "crop_pct": 0.875},
            (256, (224, 224), "bicubic"),
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}},
            ((384, 384), None, "bicubic"),
        ),
    ],
)
def test_sizes_are_understood(changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    resize, crop, interpolation = expected
    preparation = Preparation(resize, crop, interpolation, 3)
    assert read_processor("a", PROCESSOR | changes, 3).preparation == preparation


@pytest.mark.parametrize(
    ("changes", "mean", "std"),
    [
        ({}, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)),
        ({"do_normalize": False}, (0.0,), (1.0,)),
        ({"rescale_factor": 1 / 127.5}, (0.25, 0.2, 0.15), (0.25, 0.125, 0.1)),
        ({"do_rescale": False, "image_mean": [127.5], "image_std": [255.0]}, (0.5,), (1.0,)),
    ],
)
def test_normalisation_is_for_images_in_0_to_1(
    changes: dict[str, Any], mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    preprocessing = read_processor("a", PROCESSOR | changes, 3)
    assert preprocessing.mean == pytest.approx(mean)
    assert preprocessing.std == pytest.approx(std)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_processor_type": "EfficientNetImageProcessor"},
        {"image_processor_type": None},
        {"do_flip_channel_order": True},
        {"do_pad": True},
        {"rescale_offset": True},
    ],
)
def test_other_image_processors_are_not_guessed(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="pass the preparation, mean and std yourself"):
        read_processor("a", PROCESSOR | changes, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": {"longest_edge": 16}},
        {"size": None},
        {"image_mean": None},
        {"resample": 9},
        {"do_center_crop": True},
    ],
)
def test_missing_values_are_not_guessed(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must state its size, crop, mean and std"):
        read_processor("a", PROCESSOR | changes, 3)
