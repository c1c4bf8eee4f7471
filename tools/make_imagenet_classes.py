"""Make the packaged list of ImageNet's classes from the lists in timm.

    python tools/make_imagenet_classes.py

The WordNet ids are in their usual order, 0 to 999, which is also their sorted order, each with the
first of its names. Three names belong to two classes each and are disambiguated.
"""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

from deformrs.data.labels import IMAGENET_CLASSES

DISAMBIGUATED = {
    "n02012849": "crane (bird)",
    "n03126707": "crane (machine)",
    "n02113186": "Cardigan (dog)",
    "n02963159": "cardigan (jacket)",
    "n03710637": "maillot (tights)",
    "n03710721": "maillot (bathing suit)",
}


def timm_lists() -> Path:
    """Return the folder of the lists without importing timm, which would take seconds."""
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("timm is not installed: pip install timm")
    return Path(spec.submodule_search_locations[0]) / "data" / "_info"


def main() -> None:
    lists = timm_lists()
    wnids = (lists / "imagenet_synsets.txt").read_text().split()
    lines = (lists / "imagenet_synset_to_lemma.txt").read_text().splitlines()
    names = dict(line.split("\t") for line in lines)
    short = [DISAMBIGUATED.get(wnid, names[wnid].split(", ")[0]) for wnid in wnids]
    if len(wnids) != 1000 or len({name.casefold() for name in short}) != 1000:
        raise SystemExit(f"{lists} does not give a thousand classes with a name each")
    with Path(str(IMAGENET_CLASSES)).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["wnid", "name"])
        writer.writerows(zip(wnids, short, strict=True))
    print(f"{IMAGENET_CLASSES}: {len(wnids)} classes")


if __name__ == "__main__":
    main()
