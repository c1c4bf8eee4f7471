"""Image files of every kind, whole and damaged."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from image_folders import class_folders, pixels
from PIL import Image, ImageFile

from deformrs.data import load_data, load_image
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError

AS_STORED = Preparation()
SMOOTH = Image.fromarray(pixels(size=(6, 8))).resize((96, 72), Image.Resampling.BICUBIC)


def encoded(format_: str, **options: object) -> bytes:
    file = io.BytesIO()
    SMOOTH.save(file, format_, **options)
    return file.getvalue()


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "ppm", "webp", "jpg", "gif"])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_kind_of_image(tmp_path: Path, mode: str, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    image = SMOOTH.convert("L").convert("I;16") if mode == "I;16" else SMOOTH.convert(mode)
    try:
        image.save(path)
    except (OSError, ValueError):
        return  # there is no such file
    colour = load_image(path, Preparation(channels=3))
    grey = load_image(path, Preparation(channels=1))
    assert colour.shape == (3, 72, 96)
    assert grey.shape == (1, 72, 96)
    if mode in ("RGB", "RGBA", "CMYK", "P"):
        expected = np.asarray(SMOOTH).transpose(2, 0, 1) / 255
        # Web colours are at most half of 51 steps apart, and dithered; JPEG and WebP lose a bit.
        assert np.abs(colour - expected).mean() < (0.1 if mode == "P" or suffix == "gif" else 0.04)


def test_transparent_palettes(tmp_path: Path) -> None:
    warped = SMOOTH.quantize(16)
    warped.save(tmp_path / "x.png", transparency=bytes(range(16)))
    image = load_image(tmp_path / "x.png", AS_STORED)
    assert np.array_equal(
        image, np.asarray(warped.convert("RGB"), np.float32).transpose(2, 0, 1) / 255
    )


CUT = [
    *(pytest.param("JPEG", {}, part, id=f"jpeg {part}") for part in (0.05, 0.3, 0.7, 0.99)),
    *(pytest.param("JPEG", {"progressive": True}, p, id=f"progressive {p}") for p in (0.3, 0.99)),
    *(pytest.param("PNG", {}, part, id=f"png {part}") for part in (0.1, 0.9)),
    *(pytest.param(kind, {}, 0.6, id=kind) for kind in ("GIF", "BMP", "TIFF", "PPM", "WEBP")),
]


@pytest.mark.parametrize(("format_", "options", "part"), CUT)
def test_guarantee_load_image_refuses_truncated_files(
    tmp_path: Path, format_: str, options: dict[str, object], part: float
) -> None:
    data = encoded(format_, **options)
    path = tmp_path / f"x.{format_.lower()}"
    path.write_bytes(data)
    assert load_image(path, AS_STORED).shape[1:] == (72, 96)
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(InputError, match=f"{path.name} is (damaged|of no known format)"):
        load_image(path, AS_STORED)


def test_guarantee_load_image_refuses_every_jpeg_without_its_last_bytes(tmp_path: Path) -> None:
    data, path = encoded("JPEG"), tmp_path / "x.jpg"
    for missing in range(1, 60):
        path.write_bytes(data[:-missing])
        with pytest.raises(InputError, match="x.jpg is damaged"):
            load_image(path, AS_STORED)


def test_a_jpeg_padded_with_zeros_is_damaged(tmp_path: Path) -> None:
    thumbnail = (
        b"\xff\xe1" + struct.pack(">H", 2 + 200) + b"\xff\xd9" * 100
    )  # has an end of its own
    whole = encoded("JPEG")
    data = whole[:2] + thumbnail + whole[2:]
    (tmp_path / "x.jpg").write_bytes(data)
    assert np.array_equal(
        load_image(tmp_path / "x.jpg", AS_STORED) * 255,
        np.asarray(Image.open(io.BytesIO(whole))).transpose(2, 0, 1),
    )
    (tmp_path / "x.jpg").write_bytes(data[: len(data) // 2] + bytes(len(data) // 2))
    with pytest.raises(InputError, match="x.jpg is damaged"):
        load_image(tmp_path / "x.jpg", AS_STORED)


def test_files_that_are_not_images(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "folder.png").mkdir()
    # Pillow would start an interpreter of PostScript for this one.
    (tmp_path / "script.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    for name, reason in {
        "empty": "damaged .it has no bytes",
        "text": "of no known format .JPEG, PNG",
        "folder": "a folder",
        "script": "of no known format",
        "nowhere": "missing",
    }.items():
        with pytest.raises(InputError, match=f"{name}.png is {reason}"):
            load_image(tmp_path / f"{name}.png", AS_STORED)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_read_permission(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 1, "b": 1})
    (folder / "a" / "0.png").chmod(0)
    images = load_data(str(folder), AS_STORED)
    with pytest.raises(InputError, match="a/0.png is not readable .permission denied"):
        images[0]


def test_decompression_bombs_are_refused(tmp_path: Path) -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    for side in (10_000, 20_000):  # where Pillow warns, and where it refuses
        header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"")
        (tmp_path / "bomb.png").write_bytes(bomb)
        with pytest.raises(InputError, match="bomb.png is of more than 50,000,000 pixels"):
            load_image(tmp_path / "bomb.png", AS_STORED)


def test_a_damaged_file_is_named_and_the_others_load(tmp_path: Path) -> None:
    folder = class_folders(tmp_path, {"a": 2, "b": 1})
    (folder / "a" / "1.png").write_bytes((folder / "a" / "1.png").read_bytes()[:60])
    images = load_data(str(folder), AS_STORED, num_classes=2)
    with pytest.raises(InputError, match="a/1.png is "):
        images[1]
    assert images[2][1] == 1
    small = load_data(str(folder), Preparation(crop=(7, 7)))
    with pytest.raises(InputError, match="a/0.png is 6 x 8 px.*7 x 7"):
        small[0]


def test_pillows_switch_to_fill_up_images_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jpg").write_bytes(encoded("JPEG"))
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InputError, match="LOAD_TRUNCATED_IMAGES is True; it must be False"):
        load_image(tmp_path / "x.jpg", AS_STORED)


def test_truncated_exif_data_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    # One entry is promised and there: orientation 6. The four bytes after the list are missing.
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + entry
    (tmp_path / "x.jpg").write_bytes(encoded("JPEG", exif=exif))
    assert load_image(tmp_path / "x.jpg", AS_STORED).shape == (3, 96, 72)
