"""Folders that training writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_files import draw, same, some_images, tiny_net

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, load_model, save_model
from deformrs.runs.files import file_digest

DIGITS = Preparation(channels=1)


def trained(seed: int = 0) -> SmallCNN:
    net = SmallCNN(num_classes=4, channels=1, width=4, seed=seed)
    draw(net, seed)
    return net.eval()


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    net = trained()
    folder = tmp_path / "runs" / "a"
    save_model(folder, net, DIGITS, ("a", "b", "c", "d"))
    loaded = load_model(str(folder))
    images = some_images(channels=1)
    same(loaded, net, images, images)
    assert loaded.preparation == DIGITS
    assert loaded.class_names == ("a", "b", "c", "d")
    names = ("model.json", "model.safetensors")
    assert loaded.about["files"] == {name: file_digest(folder / name) for name in names}
    assert sorted(path.name for path in folder.iterdir()) == list(names)


def test_a_normalisation_is_kept(tmp_path: Path) -> None:
    net = trained()
    save_model(tmp_path, net, DIGITS, mean=(0.25,), std=(0.5,))
    loaded = load_model(str(tmp_path))
    images = some_images(channels=1)
    same(loaded, net, images, (images - 0.25) / 0.5)
    assert loaded.class_names is None


def test_saving_again_replaces(tmp_path: Path) -> None:
    save_model(tmp_path, trained(0), DIGITS)
    save_model(tmp_path, trained(1), DIGITS)
    images = some_images(channels=1)
    same(load_model(str(tmp_path)), trained(1), images, images)


def test_guarantee_save_model_is_never_mixed(tmp_path: Path) -> None:
    """As a power cut leaves it: the weights of the second network, the words of the first."""
    save_model(tmp_path, trained(0), DIGITS)
    words = (tmp_path / "model.json").read_text()
    save_model(tmp_path, trained(1), DIGITS)
    (tmp_path / "model.json").write_text(words)
    with pytest.raises(InputError, match="not the weights that model.json describes"):
        load_model(str(tmp_path))


def test_only_networks_of_the_package_are_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a TinyNet; it must be one of SmallCNN"):
        save_model(tmp_path / "a", tiny_net(), DIGITS)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "SmalCNN"}, "did you mean 'SmallCNN'"),
        ({"network": 3}, "must be one of SmallCNN"),
        ({"arguments": {"depth": 3}}, "the arguments of SmallCNN"),
        ({"arguments": None}, "the arguments of SmallCNN"),
        ({"arguments": {"width": 5}}, "'features.0.0.weight' has shape"),
        ({"preparation": {"resize": -1}}, "resize is -1"),
        ({"preparation": {"size": 3}}, "a field of preparation"),
        ({"preparation": None}, "must be a mapping"),
        ({"mean": [0.5]}, "needs both"),
        ({"sha256": "0"}, "not the weights"),
    ],
)
def test_damage_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    save_model(tmp_path, trained(), DIGITS)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=message) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '"a"', "\x00"])
def test_a_damaged_description_is_named(tmp_path: Path, text: str) -> None:
    save_model(tmp_path, trained(), DIGITS)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InputError, match="model.json is damaged"):
        load_model(str(tmp_path))


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a model.json.*hf:"):
        load_model(str(tmp_path))
    save_model(tmp_path, trained(), DIGITS)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="model.safetensors is missing"):
        load_model(str(tmp_path))
