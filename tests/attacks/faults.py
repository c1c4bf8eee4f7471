"""Kills, faults and power cuts at every file operation of the commands: `make soak`.

python tests/attacks/faults.py --out results/reliability
python tests/attacks/faults.py --verb pack --sample 20
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from importlib import import_module
from itertools import chain, zip_longest
from pathlib import Path

from injection import FAULTS, KILLS, Program, run
from subjects import Case, Subject

VARYING = {"certify*": ["*/times.tsv", "*/unfinished.jsonl"]}
"""Files that need not be equal in equal runs, by verb: a kill may lose the time of an image, and
its half-written record is kept aside."""

MEASURED = {
    "*epochs.jsonl": r'"\w*seconds": [-+.\de]+',
    # The digests cover the seconds.
    "*checkpoints/state.json": r'"\w*seconds": [-+.\de]+|"check": "\w+"',
    "*partial.json": r'"seconds": [-+.\de]+|"check": "\w+"',
}
"""Measured times within files; what surrounds them is compared."""

GROWING = ("*/certificates.jsonl", "*/times.tsv", "*/epochs.jsonl")

CERTIFY = [
    *("certify", "--model", "network", "--data", "digits", "--deformation", "rotation"),
    *("--noise", "uniform:60deg", "--n", "40", "--n0", "20", "--batch-size", "20", "--seed", "0"),
    *("--device", "cpu", "--max", "3"),
]
TRAIN = [
    *("train", "--data", "images.npz", "--model", "small_cnn:width=2", "--deformation", "rotation"),
    *("--noise", "uniform:54deg", "--device", "cpu", "--no-tensorboard", "--epochs", "2"),
    *("--batch-size", "8", "--checkpoint-seconds", "0", "--seed", "0"),
]


def same(verb: str, name: str, content: bytes) -> bytes | None:
    """Return the part of a file that equal runs have in common; None if there is none."""
    if any(fnmatch(verb, v) and fnmatch(name, p) for v, ps in VARYING.items() for p in ps):
        return None
    for pattern, measured in MEASURED.items():
        if fnmatch(name, pattern):
            return re.sub(measured.encode(), b"", content)
    return content


def deformrs(*words: str) -> Program:
    """Return the program `deformrs WORDS…`."""

    def program() -> None:
        from deformrs.cli import main

        sys.argv = ["deformrs", *words]
        main()

    return program


def warm_up() -> None:
    """Import what the commands need, once for all forks, and let them write as often as they may.

    No tensor is computed here: the threads that would start do not survive a fork.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    verbs = {words[0] for words, _ in COMMANDS.values()}
    late = ["torch._dynamo", "deformrs.report.document", "deformrs.report.export", "rich.progress"]
    for module in [*late, *(f"deformrs.cli.{verb}" for verb in verbs)]:
        import_module(module)

    import torch
    from matplotlib.figure import Figure

    from deformrs.runs import tally
    from deformrs.training import loop

    torch.set_num_threads(1)
    for kind in ("png", "svg"):
        Figure().savefig(io.BytesIO(), format=kind)  # reads the fonts, among others
    # As if every batch and every step took long enough for what was done to be stored.
    tally.SECONDS_BETWEEN_WRITES = loop.SECONDS_BETWEEN_REPORTS = -1.0


def subjects(place: Path, verbs: Sequence[str]) -> Iterator[Subject]:
    """Yield the commands, each in a folder that is prepared for it."""
    for verb, (words, prepare) in COMMANDS.items():
        if verbs and not any(fnmatch(verb, v) for v in verbs):
            continue
        folder = place / verb.replace(" ", "-")
        folder.mkdir()
        for step in prepare:
            done = run(step, folder, lambda _, content: content)
            assert done.code == 0, f"{verb}: {done.err}"
        yield Subject(
            verb,
            deformrs(*words),
            folder,
            same=lambda name, content, verb=verb: same(verb, name, content),  # type: ignore[misc]
            growing=GROWING,
            prints=words[0] == "predict",
        )


def network() -> None:
    """Save a small network for digits, as training leaves it behind."""
    from deformrs.data.preparation import Preparation
    from deformrs.models import SmallCNN, save_model

    save_model(Path("network"), SmallCNN(width=2, seed=1).eval(), Preparation(channels=1))


def images() -> None:
    """Save 16 images of two classes: bright on the left, or on the right."""
    import numpy as np

    pixels = np.random.default_rng(0).integers(0, 90, (16, 1, 16, 16), dtype=np.uint8)
    pixels[::2, :, :, :8] += 120
    pixels[1::2, :, :, 8:] += 120
    np.savez("images.npz", images=pixels, labels=np.arange(16) % 2)


def digit() -> None:
    """Save an image file."""
    import numpy as np
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 255, (28, 28), dtype=np.uint8)).save(
        "1.png"
    )


def interrupt() -> None:
    """Cut a run after the first result and half of the second, as a kill does."""
    path = Path("runs/one/certificates.jsonl")
    first, second, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:100])


RUN = [network, deformrs(*CERTIFY, "--out", "runs/one")]
PACK, REPORT = ["pack", "runs/one"], ["report", "runs/one", "--export", "log.tsv"]
COMMANDS: dict[str, tuple[list[str], list[Program]]] = {
    "certify": ([*CERTIFY, "--out", "runs/one"], [network]),
    "certify, resumed": ([*CERTIFY, "--out", "runs/one"], [*RUN, interrupt]),
    "train": ([*TRAIN, "--out", "runs/net"], [images]),
    "pack": (PACK, RUN),
    "pack --undo": ([*PACK, "--undo"], [*RUN, deformrs(*PACK)]),
    "report": (REPORT, RUN),
    "card": (["card", "runs/one", "--out", "card.md"], RUN),
    "report, again": (REPORT, [*RUN, deformrs(*REPORT, "--title", "Older", "--radii", "1deg")]),
    "predict": (["predict", "1.png", "--run", "runs/one", "--seed", "0"], [*RUN, digit]),
}
"""By verb: the words of the command, and the programs that prepare its folder."""


Place = tuple[Subject, int, str]
"""A command, the number of one of its operations, and the kind of kill or fault there."""


def sample(places: Sequence[Place], count: int) -> list[Place]:
    """Return some of the places, the same ones every time, of all verbs and operations in turn."""
    groups: dict[tuple[str, str], list[Place]] = defaultdict(list)
    shuffled = list(places)
    random.Random(0).shuffle(shuffled)
    for subject, number, kind in shuffled:
        key = subject.verb, subject.sites[number].operation
        groups[key].append((subject, number, kind))
    turns = chain.from_iterable(zip_longest(*groups.values()))
    return [place for place in turns if place is not None][:count]


def examine(verbs: Sequence[str] = (), count: int | None = None) -> Iterator[Case]:
    """Yield the results of all cases, or of a sample of `count`."""
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        made = list(subjects(Path(folder).resolve(), verbs))
        places = [(subject, *case) for subject in made for case in subject.cases()]
        for subject, number, kind in places if count is None else sample(places, count):
            yield subject.examine(number, kind)


@dataclass
class Row:
    """The results of the cases at one kind of operation of a verb."""

    verb: str
    operation: str
    sites: set[int] = field(default_factory=set)
    kills: int = 0
    power_cuts: int = 0
    faults: int = 0
    same_bytes: int = 0
    failures: int = 0

    def add(self, case: Case) -> None:
        self.sites.add(case.number)
        self.faults += case.kind in FAULTS
        self.power_cuts += case.kind == "power cut"
        self.kills += case.kind in KILLS and case.kind != "power cut"
        self.same_bytes += case.same_bytes
        self.failures += bool(case.problems)

    @property
    def cells(self) -> dict[str, str | int]:
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"sites": len(self.sites)}


def rows_of(cases: Sequence[Case]) -> list[Row]:
    """Return a row for each operation of each verb, and one of all."""
    rows: dict[tuple[str, str], Row] = {}
    for case in cases:
        key = case.verb, case.site.operation
        rows.setdefault(key, Row(*key)).add(case)
    listed = sorted(rows.values(), key=lambda row: (list(COMMANDS).index(row.verb), row.operation))
    total = Row("all", "")
    for number in fields(Row)[3:]:
        setattr(total, number.name, sum(getattr(row, number.name) for row in listed))
    total.sites = set(range(sum(len(row.sites) for row in listed)))
    return [*listed, total]


PAGE = """# Kills, faults and power cuts

Each file operation of each command goes wrong in turn, in a folder of its own: the process is
killed before it, after it and, where it writes, half-way; the power is cut before it and after the
last one, which leaves only what was synced; it fails with EIO or ENOSPC; a write is cut short, or
the disk is full from its middle on. Then the same command runs again, without a fault.

A case fails unless

- a fault ends the command with one line of error that names the file; or with a warning that names
  it, where the loss is documented (counts of unfinished images); a short write, or a failing look
  at a file that is then read in another way, may pass unnoticed if every byte is there;
- every file holds its old or its new content, or, where lines are appended, a beginning of it;
- no file that was there before and is there after the command is missing;
- the second run succeeds, with the same bytes as a command that nothing happened to;
- after a power cut at the end, everything is on the disk.

`make soak` writes this page and [faults.csv](faults.csv). A sample of the cases is part of
`make test`.

{table}

{litter}

## Not compared

{excluded}

## Not covered

Failing reads of an open file, files outside the working folder (the packaged digits, downloads),
TensorBoard's curves, which that library writes, and trainings in several processes.
{failures}"""


def page(cases: Sequence[Case]) -> str:
    """Return the report of all cases, in Markdown."""
    rows = [row.cells for row in rows_of(cases)]
    header = [name.replace("_", " ") for name in rows[0]]
    lines = ["| " + " | ".join(header) + " |", "| --- | --- |" + " ---: |" * (len(header) - 2)]
    lines += [
        "| " + " | ".join(f"{v:,}" if isinstance(v, int) else v for v in row.values()) + " |"
        for row in rows
    ]
    excluded = [f"- `{verb}`: `{'`, `'.join(files)}`" for verb, files in VARYING.items()]
    excluded += [f"- `{pattern}` within `{name}`" for name, pattern in MEASURED.items()]
    litter = sum(case.litter > 0 for case in cases)
    failures = [describe(case) for case in cases if case.problems]
    return PAGE.format(
        table="\n".join(lines),
        litter=f"Temporary files were left after {litter:,} of {len(cases):,} second runs.",
        excluded="\n".join(excluded),
        failures="\n## Failures\n\n" + "\n".join(f"- {f}" for f in failures) + "\n"
        if failures
        else "",
    )


def describe(case: Case) -> str:
    """Return a line that names the kill or fault, its place and its problems."""
    place = f"{case.verb}: {case.kind} at {case.site.operation} {case.site.path} ({case.number})"
    return f"{place}: {'; '.join(case.problems)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verb", action="append", default=[], help="one of " + ", ".join(COMMANDS))
    parser.add_argument("--sample", type=int, help="number of cases; all by default")
    parser.add_argument("--out", type=Path, help="folder for the table")
    options = parser.parse_args()
    cases = []
    began = time.monotonic()
    for case in examine(options.verb, options.sample):
        cases.append(case)
        if case.problems:
            print(describe(case), flush=True)
        if len(cases) % 250 == 0:
            print(f"{len(cases)} cases after {time.monotonic() - began:.0f} s", flush=True)
    kills = sum(case.kind in KILLS for case in cases)
    failures = sum(bool(case.problems) for case in cases)
    print(
        f"{kills} kills, {len(cases) - kills} faults, {failures} failures, "
        f"{time.monotonic() - began:.0f} s"
    )
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "README.md").write_text(page(cases), encoding="utf-8")
        with (options.out / "faults.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows_of(cases)[0].cells, lineterminator="\n")
            table.writeheader()
            table.writerows(row.cells for row in rows_of(cases))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
