"""Make torchvision importable with a torch that was built without its operators.

On the CPU build of torch, torchvision's own library does not load, and importing it fails at the
first operator it describes. With the two schemas declared it imports; classifiers need neither.
"""

from __future__ import annotations

import importlib

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[torch.library.Library] = []  # a library's schemas go when it goes


def declare() -> None:
    """Declare the missing operators. Does nothing if torchvision is absent or can be imported."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name, schema in _SCHEMAS.items():
            if not hasattr(torch.ops.torchvision, name):
                library.define(schema)  # type: ignore[no-untyped-call]
        _libraries.append(library)
        importlib.import_module("torchvision")
