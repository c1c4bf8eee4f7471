"""Remake README.md, summary.csv and figures/ of this folder from the committed runs.

    python results/make.py [--out FOLDER] [RUNS ...]

RUNS are folders of runs, by default mnist and cifar10 beside this file. How their settings were
chosen is told in paper/note.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from deformrs.runs import StoredRun, read_run, runs_in
from paper.page import write_results

HERE = Path(__file__).resolve().parent
NOTE = HERE / "paper" / "note.md"


def read_note() -> str:
    """Return how the settings of the committed runs were chosen, in Markdown."""
    return NOTE.read_text(encoding="utf-8")


def read_runs(folders: Sequence[Path]) -> Iterator[StoredRun]:
    """Yield the runs of the folders one after another: their counts fill much memory."""
    runs = [run for folder in folders for run in runs_in(folder)]
    for number, run in enumerate(runs, start=1):
        print(f"{number}/{len(runs)} {run}")
        yield read_run(run)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, default=[HERE / "mnist", HERE / "cifar10"])
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the files [results]")
    options = parser.parse_args(arguments)
    for path in write_results(read_runs(options.runs), options.out, read_note()).values():
        print(path)


if __name__ == "__main__":
    main()
