"""Make the packaged digits from the four published MNIST files.

    python tools/make_digits.py FOLDER

FOLDER holds train-images-idx3-ubyte.gz and the three others. The first 4,000 training images and
the first 1,000 test images become the tiles of one greyscale PNG, row by row; their labels become
one line of digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from deformrs.data.mnist import COLUMNS, IMAGE, LABELS, SIDE, TEST, TRAIN, read_mnist


def main(folder: Path) -> None:
    train_images, train_labels = read_mnist(folder, "train")
    test_images, test_labels = read_mnist(folder, "test")
    images = np.concatenate([train_images[:TRAIN], test_images[:TEST]])
    labels = np.concatenate([train_labels[:TRAIN], test_labels[:TEST]])
    tiles = images.reshape(-1, COLUMNS, SIDE, SIDE).swapaxes(1, 2).reshape(-1, COLUMNS * SIDE)
    Image.fromarray(tiles).save(str(IMAGE), optimize=True)
    Path(str(LABELS)).write_text("".join(map(str, labels)) + "\n")
    print(f"{IMAGE}: {Path(str(IMAGE)).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
