"""Reading picture files, so that a damaged one is an error and never half a picture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageFile, UnidentifiedImageError

from deformrs.data.base import PictureSet, one_line
from deformrs.errors import InputError
from deformrs.preparation import Pixels, Preparation

SUFFIXES = (
    *(".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)

# Named, because Pillow would hand what looks like PostScript to an interpreter.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False, repr=False)
class FileSet(PictureSet):
    """Picture files under one folder, named relative to it with forward slashes."""

    folder: Path
    files: tuple[str, ...]

    def source(self, index: int) -> str:
        return one_line(self.files[index])

    def _prepared(self, index: int) -> Pixels:
        return load_picture(self.folder / self.files[index], self.preparation)


def load_picture(path: Path, preparation: Preparation) -> Pixels:
    """The picture in that file, prepared: [c, h, w] in [0, 1].

    Guarantee: a file that breaks off before its end raises; nothing is filled in for the rest.
    """
    name = f"the picture {one_line(str(path))}"
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES",
            True,
            "must be False, or pictures that are cut off would be filled up in grey",
            "do not set it in your code, nor use a package that does",
        )
    try:
        picture = _decoded(path)
    # A damaged file makes Pillow fail in many ways: struct.error, IndexError, SyntaxError, ...
    except Exception as error:
        raise InputError(
            name,
            _reason(error),
            "must be a whole picture",
            "replace the file, or leave it out",
        ) from error
    try:
        return preparation.prepare(picture)
    except InputError as error:
        raise InputError(name, error.value, error.rule, error.remedy) from None


def _decoded(path: Path) -> Image.Image:
    data = path.read_bytes()
    if not data:
        raise EOFError("it has no bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # Many cameras write EXIF data that breaks off; what can be read of it is used.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")
        with Image.open(BytesIO(data), formats=_FORMATS) as picture:
            picture.load()
            picture.getexif()  # so that it fails here if it cannot be read at all
            if picture.format in ("JPEG", "MPO") and not _has_end(data):
                raise EOFError("a JPEG without its end")
    return picture


def _has_end(jpeg: bytes) -> bool:
    """Does the marker of the end follow the pixels?

    Where a copy broke off and left zeros behind, the decoder takes them for pixels. Segments
    before the pixels are stepped over: a thumbnail in them has an end of its own.
    """
    place = 2
    while jpeg[place : place + 2] != b"\xff\xda":
        if place + 4 > len(jpeg):
            return False
        if jpeg[place] != 0xFF or jpeg[place + 1] in (0xFF, 0x01):
            place += 1  # filling between segments
        else:
            place += 2 + int.from_bytes(jpeg[place + 2 : place + 4])
    return b"\xff\xd9" in jpeg[place:]


def _reason(error: Exception) -> str:
    match error:
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            return f"of more than {Image.MAX_IMAGE_PIXELS:,} pixels"
        case FileNotFoundError():
            return "missing"
        case PermissionError():
            return "closed to you (permission denied)"
        case IsADirectoryError():
            return "a folder"
        case UnidentifiedImageError():
            return "none that is known (" + ", ".join(_FORMATS) + ")"
        case _:
            return f"damaged ({one_line(str(error)) or type(error).__name__})"
