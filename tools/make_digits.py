"""Make the digits shipped with the package from the four original MNIST files.

    python tools/make_digits.py FOLDER

FOLDER holds train-images-idx3-ubyte.gz and the three others. The first 4,000 training images and
the first 1,000 test images are laid out as tiles of one greyscale PNG, row by row, the labels
beside it as one line of digits.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deformrs.data.digits import COLUMNS, IMAGE, LABELS, SIDE, TEST, TRAIN

HEADER = {"images": 16, "labels": 8}


def read_idx(path: Path, kind: str) -> NDArray[np.uint8]:
    data = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)[HEADER[kind] :]
    return data.reshape(-1, SIDE, SIDE) if kind == "images" else data


def main(folder: Path) -> None:
    parts = (("train", TRAIN), ("t10k", TEST))
    images = np.concatenate(
        [read_idx(folder / f"{p}-images-idx3-ubyte.gz", "images")[:n] for p, n in parts]
    )
    labels = np.concatenate(
        [read_idx(folder / f"{p}-labels-idx1-ubyte.gz", "labels")[:n] for p, n in parts]
    )
    tiles = images.reshape(-1, COLUMNS, SIDE, SIDE).swapaxes(1, 2).reshape(-1, COLUMNS * SIDE)
    Image.fromarray(tiles).save(str(IMAGE), optimize=True)
    Path(str(LABELS)).write_text("".join(map(str, labels)) + "\n")
    print(f"{IMAGE}: {Path(str(IMAGE)).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
