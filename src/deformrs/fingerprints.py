"""What a run records of its classifier and its images, to tell them from others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deformrs import __version__
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.geometry import size_of
from deformrs.randomness import Draws, Span, Stage, generator_for
from deformrs.runs.folder import GENERATOR, TORCH, difference
from deformrs.runs.records import image_digest
from deformrs.smoothing import SmoothedClassifier


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """How a classifier deforms an image: its settings, and where it reads under some noise."""

    settings: Config
    field: Tensor
    """The fields of a few draws, on a CPU: [n, h, w, 2]."""

    @classmethod
    def of(cls, classifier: SmoothedClassifier, image: Tensor) -> Fingerprint:
        """Return that of a classifier for images like this one: [c, h, w]."""
        size = size_of(image)
        space = classifier.deformation.space(size)
        draws = Draws(classifier.noise, space, torch.device("cpu"), seed=0)
        raw = draws.of([Span(0, Stage.PREDICT, 0, _DRAWS)])
        with torch.inference_mode():
            field = classifier.deformation.field(classifier.noise.params(raw, space), size)
        settings: Config = {
            "noise": classifier.noise.to_config(),
            "deformation": classifier.deformation.to_config(),
            "padding": classifier.padding,
            "num_classes": classifier.num_classes,
        }
        return cls(settings, field.clone())

    def check(self, classifier: SmoothedClassifier, image: Tensor) -> None:
        """Raise unless a classifier deforms images in the same way, up to rounding."""
        own = Fingerprint.of(classifier, image)
        if own.settings != self.settings:
            reason = difference(own.settings, self.settings)
        elif not torch.allclose(own.field, self.field, atol=_TOLERANCE):
            reason = "its deformation reads elsewhere under the same noise"
        else:
            return
        raise InputError(
            "the classifier of this worker",
            f"not that of the run ({reason})",
            "must have its noise, deformation and padding",
            "use the same code and settings everywhere",
        )


_DRAWS, _TOLERANCE = 4, 1e-4


def classifier_config(classifier: SmoothedClassifier, image: Tensor) -> Config:
    """Return what class counts depend on, except for the image, its index, the seed and n.

    `image` is any of the images: a plain function runs where they are.
    """
    compiled, device = classifier.sampler.compiled, classifier.device_for(image)
    config: Config = {
        "version": __version__,
        "torch": str(torch.__version__),
        "device": device_name(device),
        "model": network_config(classifier.model),
        "num_classes": classifier.num_classes,
        "deformation": classifier.deformation.to_config(),
        "padding": classifier.padding,
        "batch_size": classifier.batch_size,
    }
    generator = generator_for(device, seed=0).name
    config |= {GENERATOR: generator} if generator != TORCH else {}
    return config | ({"compiled": compiled} if compiled != "no" else {})


def network_config(model: object) -> Config:
    """Return a network's class and the digest of its weights; of a function only its name."""
    if not isinstance(model, nn.Module):
        return {"function": getattr(model, "__qualname__", type(model).__qualname__)}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor):  # extra state may be anything
            digest.update(f"{name} {tensor_digest(tensor)}".encode())
    return {"network": type(model).__qualname__, "parameters": digest.hexdigest()[:16]}


def with_model(config: Config, about: Config) -> Config:
    """Return both configurations; what either knows of the model is kept."""
    ours, theirs = config.get("model"), about.get("model")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        about = about | {"model": theirs | ours}
    return config | about


def device_name(device: torch.device) -> str:
    """Return the kind of device: results repeat on one kind only."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def tensor_digest(tensor: Tensor) -> str:
    """Return the digest of an image or of a weight."""
    array = tensor.detach().cpu().contiguous()
    content = array.reshape(-1).view(torch.uint8).numpy().tobytes()
    return image_digest(tuple(array.shape), str(array.dtype).removeprefix("torch."), content)
