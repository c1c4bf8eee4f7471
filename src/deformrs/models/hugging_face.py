"""Image classifiers of Hugging Face, from the hub or from a folder, never from a pickle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.models.extras import first_line, import_extra, quiet, reachable
from deformrs.models.image_processor import read_processor
from deformrs.models.parts import BuiltModel, Found
from deformrs.models.weights import file_digest


def load_hugging_face(name: str, asked_for: bool) -> Found:
    """`hf:ORG/NAME` or `hf:FOLDER`, prepared and normalised as its image processor says.

    `asked_for`: the caller gives the preparation and the normalisation, so that the image
    processor is not read.
    """
    if not Path(name).is_dir() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
        raise InputError(f"the folder {name}", "missing", "must exist for hf:", "check the path")
    transformers = import_extra("transformers", "huggingface")
    with quiet("transformers", "huggingface_hub"), _no_bars(transformers):
        if Path(name).is_dir():
            network, processor = _load(transformers, name, True, asked_for)
        else:
            network, processor = _from_hub(transformers, name, asked_for)
    channels = int(getattr(network.config, "num_channels", 3))
    wanted = read_processor(name, processor, channels)
    about: Config = {"transformers": str(transformers.__version__)}
    if Path(name).is_dir():
        about["files"] = {
            path.name: file_digest(path)
            for path in sorted(Path(name).iterdir())
            if path.suffix in (".json", ".safetensors")
        }
    names = [str(label) for _, label in sorted(network.config.id2label.items())]
    real = any(label != f"LABEL_{index}" for index, label in enumerate(names))
    built = BuiltModel(
        network,
        wanted.preparation,
        wanted.mean,
        wanted.std,
        tuple(names) if real else None,
        channels_last=True,
    )
    return Found(built, about)


def _from_hub(
    transformers: ModuleType, name: str, asked_for: bool
) -> tuple[Any, dict[str, Any] | None]:
    """From the cache if it is there: what was downloaded once is not asked for again."""
    hub = import_extra("huggingface_hub", "huggingface")
    try:
        return _load(transformers, name, True, asked_for)
    except InputError:
        if hub.constants.HF_HUB_OFFLINE or not reachable(hub.constants.ENDPOINT):
            raise InputError(
                f"the model hf:{name}",
                f"not in the cache, and {hub.constants.ENDPOINT} cannot be reached",
                "must be a folder, or be downloaded",
                "give hf:FOLDER with config.json and model.safetensors",
            ) from None
    return _load(transformers, name, False, asked_for)


def _load(
    transformers: ModuleType, name: str, local: bool, asked_for: bool
) -> tuple[Any, dict[str, Any] | None]:
    # Without a word on remote code, transformers would ask the terminal whether to run it.
    options: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    processor: dict[str, Any] | None = None
    try:
        network, report = transformers.AutoModelForImageClassification.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **options
        )
        if not asked_for:
            reader = transformers.ImageProcessingMixin
            processor, _ = reader.get_image_processor_dict(name, local_files_only=local)
    except ImportError as error:
        raise InputError(
            f"the model hf:{name}",
            f"not loaded ({first_line(_origin(error))})",
            "needs packages that fit the torch that is installed",
            "pip install --upgrade 'deformrs[huggingface]'",
        ) from error
    except Exception as error:  # any kind, as files are taken apart
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
    """What went wrong first: transformers hides a failed import behind others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _no_bars(transformers: ModuleType) -> Iterator[None]:
    """No progress bars while files are read."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
