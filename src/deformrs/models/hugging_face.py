"""Image classifiers of Hugging Face, from the hub or a folder; weights only as safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from deformrs.config import Config
from deformrs.data.preparation import Interpolation, Preparation
from deformrs.errors import InputError, UnsupportedError, first_line, install_command
from deformrs.limits import open_file
from deformrs.models.optional_dependencies import (
    import_extra,
    not_downloaded,
    quiet,
    reachable,
)
from deformrs.models.types import NetworkSpec, ResolvedSource
from deformrs.runs.files import file_digest

# The image processors that do what their configuration says and nothing else.
_SQUARE = {"ViT", "DeiT", "Beit", "Siglip"}  # a bare number is the side of a square
_EDGE = {"CLIP", "Bit", "ConvNext", "MobileNetV1", "MobileNetV2"}  # ... or the shorter side

_RESAMPLE: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
_UNSUPPORTED = ("do_pad", "do_flip_channel_order", "rescale_offset")


@dataclass(frozen=True)
class Preprocessing:
    """The preparation and normalisation of images in [0, 1]."""

    preparation: Preparation
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def read_processor(name: str, config: dict[str, Any] | None, channels: int) -> Preprocessing:
    """Return what an image processor does; without one, only the channels are converted."""
    if config is None:
        return Preprocessing(Preparation(channels=channels))
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type"))
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(ending)
    odd = [key for key in _UNSUPPORTED if config.get(key)]
    if kind not in _SQUARE | _EDGE or odd:
        raise UnsupportedError(
            f"the image processor of hf:{name}",
            f"{kind!r}" + (f" with {odd[0]}" if odd else ""),
            "must be one of " + ", ".join(sorted(_SQUARE | _EDGE)),
            "pass the preparation, mean and std yourself",
        )
    try:
        preparation = _preparation(config, kind, channels)
        mean, std = _normalisation(config)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the image processor of hf:{name}",
            f"not understood ({error!r})",
            "must state its size, crop, mean and std",
            "pass the preparation, mean and std yourself",
        ) from None
    return Preprocessing(preparation, mean, std)


def _preparation(config: dict[str, Any], kind: str, channels: int) -> Preparation:
    resize: int | tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    if config.get("do_resize", True):
        resize = _size(config["size"], square=kind in _SQUARE)
        if kind == "ConvNext" and isinstance(resize, int):
            # Small images are cropped from larger ones, large ones are stretched to a square.
            side = resize
            if side < 384:
                resize, crop = int(side / config["crop_pct"]), (side, side)
            else:
                resize = (side, side)
    if config.get("do_center_crop", False):
        cut = _size(config["crop_size"], square=True)
        crop = cut if isinstance(cut, tuple) else (cut, cut)
    return Preparation(
        resize=resize,
        crop=crop,
        interpolation=_RESAMPLE[config.get("resample", 2)],
        channels=channels,
    )


def _size(size: Any, square: bool) -> int | tuple[int, int]:
    if isinstance(size, int):
        return (size, size) if square else size
    if isinstance(size, list):
        height, width = size
        return int(height), int(width)
    if set(size) == {"shortest_edge"}:
        return int(size["shortest_edge"])
    if set(size) == {"height", "width"}:
        return int(size["height"]), int(size["width"])
    raise ValueError(f"size {size}")


def _normalisation(config: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std for x in [0, 1]: (255 f x - m) / s is (x - m / 255f) / (s / 255f)."""
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    mean, std = [0.0], [1.0]
    if config.get("do_normalize", True):
        mean, std = config["image_mean"], config["image_std"]
    scale = 255 * factor
    if abs(scale - 1) < 1e-9:  # 1/255 as text is not quite 1/255
        scale = 1.0
    return tuple(float(m) / scale for m in mean), tuple(float(s) / scale for s in std)


def load_hugging_face(name: str, described: bool, download: bool = True) -> ResolvedSource:
    """Load `hf:ORG/NAME` or `hf:FOLDER` with the preprocessing of its image processor.

    `described`: the caller passes the preparation and the normalisation, so that the image
    processor is not read. Without `download` it must be a folder, or be in the cache.
    """
    if not Path(name).is_dir() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise InputError(f"the folder {name}", "missing", "must exist for hf:", "check the path")
    transformers = import_extra("transformers")
    with quiet("transformers", "huggingface_hub"), _no_bars(transformers):
        if Path(name).is_dir():
            for path in Path(name).iterdir():
                if not path.is_dir():
                    open_file(path).close()  # raises for a pipe, at which transformers would wait
            network, processor = _load(transformers, name, True, described)
        else:
            network, processor = _from_hub(transformers, name, described, download)
    channels = int(getattr(network.config, "num_channels", 3))
    preprocessing = read_processor(name, processor, channels)
    about: Config = {"transformers": str(transformers.__version__)}
    if Path(name).is_dir():
        about["files"] = {
            path.name: file_digest(path)
            for path in sorted(Path(name).iterdir())
            if path.suffix in (".json", ".safetensors")
        }
    labels = sorted(network.config.id2label.items())
    if [index for index, _ in labels] != list(range(len(labels))):
        raise InputError(
            f"the class indices of hf:{name}",
            ", ".join(str(index) for index, _ in labels[:5]),
            f"must be 0 to {len(labels) - 1}",
            "correct id2label in its config.json",
        )
    names = [str(label) for _, label in labels]
    real = any(label != f"LABEL_{index}" for index, label in enumerate(names))
    spec = NetworkSpec(
        network,
        preprocessing.preparation,
        preprocessing.mean,
        preprocessing.std,
        tuple(names) if real else None,
        channels_last=True,
    )
    return ResolvedSource(spec, about, name=None if Path(name).is_dir() else f"hf:{name}")


def _from_hub(
    transformers: ModuleType, name: str, described: bool, download: bool
) -> tuple[Any, dict[str, Any] | None]:
    """Load from the cache if it is there, else from the hub if `download`."""
    hub = import_extra("huggingface_hub")
    try:
        return _load(transformers, name, True, described)
    except InputError:
        if not download:
            raise not_downloaded(f"hf:{name}") from None
        if hub.constants.HF_HUB_OFFLINE or not reachable(hub.constants.ENDPOINT):
            raise InputError(
                f"the model hf:{name}",
                f"not in the cache, and {hub.constants.ENDPOINT} cannot be reached",
                "must be a folder, or be downloaded",
                "give hf:FOLDER with config.json and model.safetensors",
            ) from None
    return _load(transformers, name, False, described)


def _load(
    transformers: ModuleType, name: str, local: bool, described: bool
) -> tuple[Any, dict[str, Any] | None]:
    # By default, transformers would prompt on the terminal whether to run remote code.
    options: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    processor: dict[str, Any] | None = None
    try:
        network, report = transformers.AutoModelForImageClassification.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **options
        )
        if not described:
            reader = transformers.ImageProcessingMixin
            processor, _ = reader.get_image_processor_dict(name, local_files_only=local)
    except ImportError as error:
        raise InputError(
            f"the model hf:{name}",
            f"not loaded ({first_line(_origin(error))})",
            "needs packages that fit the torch that is installed",
            install_command("transformers", upgrade=True),
        ) from error
    except Exception as error:  # damaged files can raise anything
        raise InputError(
            f"the model hf:{name}",
            f"not loaded ({first_line(error)})",
            "must be an image classifier with safetensors weights and an image processor",
            "check the name or the folder",
        ) from error
    missing = sorted(str(key) for key in (*report["missing_keys"], *report["mismatched_keys"]))
    if missing:
        raise InputError(
            f"the model hf:{name}",
            f"without {missing[0]!r} ({len(missing)} keys in all)",
            "must have all weights of an image classifier",
            "choose one that was trained for classification",
        )
    return network, processor


def _origin(error: BaseException) -> BaseException:
    """Return the first exception: transformers hides a failed import behind others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _no_bars(transformers: ModuleType) -> Iterator[None]:
    """Disable progress bars while files are read."""
    logging = transformers.utils.logging
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
