"""Without a network: weights from the caches, or an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_files import scores, some_images

import torchvision_ops

torchvision_ops.declare()
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("transformers")

TESTS = Path(__file__).parent.parent
SMALL = "shufflenet_v2_x0_5"


def test_weights_in_the_caches_need_no_network(tmp_path: Path) -> None:
    """A process without a network: weights come from the caches, or the error says what to do."""
    net = torchvision.models.get_model(SMALL).eval()
    url = torchvision.models.get_model_weights(SMALL).DEFAULT.url
    hub = tmp_path / "torch" / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    torch.save(net.state_dict(), hub / url.rpartition("/")[2])
    small = timm.create_model("test_resnet").eval()
    repository = tmp_path / "hf" / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    save_file(small.state_dict(), snapshot / "model.safetensors")
    code = f"""
import torch, torchvision_ops; torchvision_ops.declare()
from deformrs.models import load_model
torch.set_num_threads(1)
images = torch.load({str(tmp_path / "pictures.pt")!r}, weights_only=True)
for source in ("torchvision:{SMALL}", "timm:test_resnet"):
    loaded = load_model(source)
    scores = loaded.module((images))
    torch.save(scores, {str(tmp_path)!r} + "/" + source.partition(":")[0] + ".pt")
for source in ("timm:resnet18", "torchvision:resnet18", "hf:someone/something"):
    try:
        load_model(source)
    except ValueError as error:
        print(error)
"""
    images = some_images(2, side=64)
    torch.save(images, tmp_path / "pictures.pt")
    environment = os.environ | {
        "PYTHONPATH": str(TESTS),
        "TORCH_HOME": str(tmp_path / "torch"),
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "https_proxy": "http://127.0.0.1:9",  # no one answers there
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout
    for line, source in zip(lines, ("timm:resnet18", "torchvision:resnet18"), strict=False):
        assert line.startswith(f"the model {source} is without weights (")
        assert line.endswith(
            "; it needs some: pass a file of them with --weights (in Python, weights=)"
        )
    assert lines[2].startswith("the model hf:someone/something is not in the cache, and https://")
    for name, original in (("torchvision", net), ("timm", small)):
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        if name == "timm":
            mean = std = torch.tensor([0.5, 0.5, 0.5])
        want = scores(original, (images - mean[:, None, None]) / std[:, None, None])
        got = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
