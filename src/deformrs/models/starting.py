"""From a source, as people write it, to the network that training begins with."""

from __future__ import annotations

import difflib
from pathlib import Path

from deformrs.checks import check_seed, check_whole
from deformrs.errors import InputError
from deformrs.models.factory import of_file
from deformrs.models.libraries import LIBRARIES, of_library
from deformrs.models.named import OWN_NAMES, nearest_own, own_network
from deformrs.models.start import Start, Wanted
from deformrs.models.start_sources import start_library, start_own, start_saved, start_users
from deformrs.models.weights import require_file

__all__ = ["STARTS", "Start", "start_model"]

STARTS = ", ".join(
    (*OWN_NAMES, "timm:NAME", "torchvision:NAME", "a run folder", "FILE.py:FUNCTION")
)
_FIXED = (".onnx", ".pt2")


def start_model(
    source: str,
    num_classes: int,
    channels: int,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    seed: int = 0,
) -> Start:
    """The network that `source` names, for so many classes of pictures with so many channels.

        small_cnn   resnet18:width=32   resnet50      networks of this package
        timm:NAME   torchvision:NAME                  of those libraries
        runs/rotation                                 goes on from what training wrote there
        mymodel.py:build                              a function that returns a network

    Weights are drawn from `seed`, or those of a .safetensors or .pth file, or, with `pretrained`,
    published ones (of timm, of torchvision, of torchvision's ResNet-50). Where these are for
    another number of classes the head is drawn anew; everything else must fit.

    Guarantee: the weights depend on these arguments alone (and on the user's own file), and
    torch's global random state is as before.

    >>> start = start_model("ResNet-18:width=8", num_classes=10, channels=1)
    >>> start.network, start.arguments["width"], start.built.preparation.words
    ('ResNet18', 8, 'grey')
    """
    check_whole("num_classes", num_classes, least=1)
    check_whole("channels", channels, least=1)
    check_seed("seed", seed)
    source = str(source).strip()
    if weights is not None:
        weights = Path(weights)
        require_file("the weights file", weights)
    if weights is not None and pretrained:
        raise InputError(
            "pretrained", "given beside weights", "stands for published ones", "leave one out"
        )
    wanted = Wanted(source, int(num_classes), int(channels), weights, pretrained, int(seed))
    own = own_network(source)
    if own is not None:
        return start_own(wanted, *own)
    if of_library(source):
        return start_library(wanted)
    if of_file(source):
        return start_users(wanted)
    if source and Path(source).is_dir():
        return start_saved(wanted)
    raise _unknown(source)


def _unknown(source: str) -> InputError:
    library, colon, name = source.partition(":")
    near = difflib.get_close_matches(library.lower(), LIBRARIES, n=1)
    own = nearest_own(source)
    path = Path(source)
    if path.suffix == ".py":
        remedy = f"name the function that builds it, e.g. {source}:build"
    elif path.suffix in _FIXED or library == "hf":
        remedy = "its computation cannot be trained here: build the network in a Python file"
    elif path.is_file():
        remedy = "a file of weights needs a network: give that as the model, this as --weights"
    elif colon and near:
        remedy = f"did you mean {near[0]}:{name}?"
    elif own is not None:
        remedy = f"did you mean {own}? A network of timm would be timm:{library}"
    else:
        remedy = "there is no such folder; a network of timm is e.g. timm:resnet34"
    return InputError("the model", repr(source), f"must be one of {STARTS}", remedy)
