"""What tells one classifier and one picture from another, for a run's configuration."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from deformrs import __version__
from deformrs.config import Config
from deformrs.preparation import digest
from deformrs.smoothing import SmoothedClassifier


def identity_of(classifier: SmoothedClassifier, image: Tensor) -> Config:
    """All that counts depend on, but for the picture, its index, the seed and the samples.

    `image` is any of the pictures: a function runs where they lie.
    """
    identity: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(classifier.device_for(image)),
        "model": network_identity(classifier.model),
        "num_classes": classifier.num_classes,
        "deformation": classifier.deformation.to_config(),
        "padding": classifier.padding,
        "batch_size": classifier.batch_size,
    }
    compiled = classifier.sampler.compiled
    return identity | ({"compiled": compiled} if compiled != "no" else {})


def device_name(device: torch.device) -> str:
    """The kind of machine: results repeat on one kind only."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def digest_of(tensor: Tensor) -> str:
    """The digest of a picture, or of a weight."""
    array = tensor.detach().cpu().contiguous()
    content = array.reshape(-1).view(torch.uint8).numpy().tobytes()
    return digest(tuple(array.shape), str(array.dtype).removeprefix("torch."), content)


def network_identity(model: object) -> Config:
    """A network by its weights. A function has only its name: the caller must keep it the same."""
    if not isinstance(model, nn.Module):
        return {"function": getattr(model, "__qualname__", type(model).__qualname__)}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor):  # extra state may be anything
            digest.update(f"{name} {digest_of(tensor)}".encode())
    return {"network": type(model).__qualname__, "parameters": digest.hexdigest()[:16]}
