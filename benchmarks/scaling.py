"""Simulate a certification on 1 to 10,000 workers, and compare it with real runs on Ray.

    python benchmarks/scaling.py                        # a minute of real runs, then the tables
    python benchmarks/scaling.py --only simulate --speed 46565 --images 50000

- check: a small network certifies digits until radii are decided and with a tolerance: in this
  process, and on Ray with one and two workers. The times of the first predict the others.
- simulate: the samples that each image of a run took are drawn for as many images as ImageNet's
  validation set has. Printed are the time, the share of it that workers are busy, the tail (from
  when the first worker has nothing left to do), and the hours that all workers take together.

The simulation hands out pieces as the engine does: in order, two to a worker at a time, by one
driver that takes some time for each. A GPU is assumed to be as fast with few images as with many.
"""

from __future__ import annotations

import csv
import heapq
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import click
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from deformrs import RayEngine, Stopping, certify_dataset
from deformrs.bars import Progress
from deformrs.memory import keep_freed_memory
from deformrs.runs import Result, load_run, read_times
from subject import Options, Subject, load_subject

Floats = NDArray[np.float64]
Part = Literal["check", "simulate"]

ROOT = Path(__file__).resolve().parent.parent
DECIDED = ROOT / "results/cifar10/rotation-54"
"""Four radii, ResNet-18, at most 100,000 samples an image."""

N, N0 = 100_000, 100
WORKERS = (1, 10, 100, 1000, 10_000)
IN_FLIGHT = 2


@dataclass(frozen=True)
class Outcome:
    """What a simulated run took: seconds, all workers together where `busy`."""

    seconds: float
    busy: float
    tail: float
    workers: int

    @property
    def utilisation(self) -> float:
        return self.busy / (self.workers * self.seconds)

    @property
    def hours(self) -> float:
        """The hours that all workers take together, from the beginning to the end."""
        return self.workers * self.seconds / 3600


@dataclass
class _Worker:
    queue: deque[float] = field(default_factory=deque)
    """The seconds of the pieces that wait."""
    runs: bool = False
    ended: float = 0.0


def simulate(
    pieces: Sequence[float], workers: int, *, start: float = 0.0, driver: float = 0.0
) -> Outcome:
    """Return what it takes to sample pieces of these seconds.

    `start` is the time until a worker is ready, `driver` what the driver takes for each piece.
    """
    left = deque(pieces)
    own = [_Worker() for _ in range(workers)]
    events: list[tuple[float, int]] = []
    clock = start
    """When the driver is free."""

    def send(number: int, now: float) -> None:
        worker, seconds = own[number], left.popleft()
        if worker.runs:
            worker.queue.append(seconds)
        else:
            worker.runs = True
            heapq.heappush(events, (now + seconds, number))

    for _ in range(IN_FLIGHT):
        for number in range(min(workers, len(left))):
            if left:
                clock += driver
                send(number, clock)
    idle, end = None, start
    while events:
        now, number = heapq.heappop(events)
        worker, end = own[number], now
        worker.runs, worker.ended = False, now
        if worker.queue:
            worker.runs = True
            heapq.heappush(events, (now + worker.queue.popleft(), number))
        clock = max(clock, now) + driver
        if left:
            send(number, clock)
        elif not worker.runs and idle is None:
            idle = now
    end = max(end, clock)
    return Outcome(end, float(sum(pieces)), end - (start if idle is None else idle), workers)


def in_pieces(samples: Floats, together: int, block: int | None = None) -> Floats:
    """Return the samples of each piece of so many images; with `block`, of images that take more
    than that, each block of them is a piece of its own."""
    if block is not None:
        whole = np.minimum(samples, block)
        rest = samples[samples > block] - block
        blocks = [np.full(int(-(-more // block)), block) for more in rest]
        return np.concatenate([in_pieces(whole, together), *blocks])
    starts = np.arange(0, len(samples), together)
    return np.add.reduceat(samples, starts)


def samples_of(results: Sequence[Result]) -> Floats:
    """Return the samples of each image, with those that selected its class."""
    counts = [result.certificate.counts for result in results]
    return np.array([c.n0 + c.n for c in counts], dtype=np.float64)


# ---------------------------------------------------------------- real runs


@dataclass(frozen=True)
class Measured:
    """A run: its samples, and the seconds that its images took."""

    samples: Floats
    seconds: Floats
    elapsed: float


def certify(
    subject: Subject,
    images: int,
    stopping: Stopping,
    folder: Path,
    engine: RayEngine | None = None,
) -> Measured:
    """Certify digits, on Ray from when all workers sample."""
    arrivals: list[tuple[float, int]] = []
    done = 0

    def decided(count: int) -> None:
        nonlocal done
        done += count

    def working(words: str) -> None:
        if engine is not None and words.startswith(f"{engine.workers} worker"):
            arrivals.append((time.perf_counter(), done))

    results = certify_dataset(
        subject.classifier,
        subject.images,
        n=N,
        n0=N0,
        seed=0,
        stopping=stopping,
        max=images,
        together=8,
        out=folder,
        engine=engine,
        progress=Progress(decided=decided, workers=working),
    )
    began = time.perf_counter()
    made = list(results)
    elapsed = time.perf_counter() - began
    if engine is not None:
        # As if the images before had been done at the speed of those after.
        share = (len(made) - arrivals[0][1]) / len(made)
        elapsed = (arrivals[-1][0] - arrivals[0][0]) / share
    times = read_times(folder)
    seconds = np.array([times[result.index] for result in made])
    return Measured(samples_of(made), seconds, elapsed)


def check(images: int, console: Console) -> dict[str, Floats]:
    """Print predicted and real times; return the samples of each image by mode."""
    subject = load_subject(Options(precision="float32"))
    torch.set_num_threads(1)
    table = Table("mode", "workers", "predicted", "real", "real / predicted")
    found = {}
    for mode, stopping in (
        ("decide", Stopping(radii=("10deg", "30deg", "45deg"))),
        ("adaptive", Stopping(tolerance="1deg")),
    ):
        with TemporaryDirectory() as place:
            folder = Path(place)
            own = certify(subject, images, stopping, folder / "own")
            found[mode] = own.samples
            # Times of a piece are divided equally among its images.
            pieces = np.add.reduceat(own.seconds, np.arange(0, len(own.seconds), 8))
            for workers in (1, 2):
                predicted = simulate(pieces.tolist(), workers).seconds
                engine = RayEngine(workers=workers, gpus_per_worker=0.0)
                real = certify(subject, images, stopping, folder / str(workers), engine).elapsed
                ratio = f"{real / predicted:.2f}"
                table.add_row(mode, str(workers), f"{predicted:.1f} s", f"{real:.1f} s", ratio)
    console.print(table)
    return found


# ---------------------------------------------------------------- tables


def tables(
    samples: dict[str, Floats],
    images: int,
    speed: float,
    start: float,
    driver: float,
    console: Console,
) -> list[list[str]]:
    """Print a table for each mode; return their rows."""
    rng = np.random.default_rng(0)
    rows = [["mode", "together", "block", "workers", "seconds", "utilisation", "tail", "hours"]]
    for mode, found in samples.items():
        drawn = rng.choice(found, size=images)
        table = Table(
            "images in a piece", "workers", "time", "busy", "tail", "all workers together",
            title=f"{mode}: {images:,} images, {drawn.mean():,.0f} samples on average",
        )  # fmt: skip
        ways: list[tuple[int, int | None]] = [(1, None)]
        if mode != "fixed":
            ways = [(256, None), (32, None), (1, None), (1, 10_000)]
        for together, block in ways:
            pieces = (in_pieces(drawn, together, block) / speed).tolist()
            for workers in WORKERS:
                made = simulate(pieces, workers, start=start, driver=driver)
                words = f"{together}" + (f", in blocks of {block:,}" if block else "")
                table.add_row(
                    words,
                    f"{workers:,}",
                    f"{made.seconds:,.0f} s",
                    f"{made.utilisation:.0%}",
                    f"{made.tail:,.1f} s",
                    f"{made.hours:,.2f} h",
                )
                rows.append(
                    [mode, str(together), str(block or ""), str(workers), f"{made.seconds:.2f}",
                     f"{made.utilisation:.4f}", f"{made.tail:.2f}", f"{made.hours:.3f}"]
                )  # fmt: skip
        console.print(table)
    return rows


@click.command()
@click.option("--only", type=click.Choice(get_args(Part)), multiple=True)
@click.option("--digits", default=400, show_default=True, help="Images of the real runs.")
@click.option("--decided", default=DECIDED, show_default=True, type=click.Path(path_type=Path))
@click.option("--images", default=50_000, show_default=True)
@click.option("--speed", default=46_565.0, show_default=True, help="Samples/s of a worker.")
@click.option("--start", default=60.0, show_default=True, help="Seconds until a worker is ready.")
@click.option("--driver", default=0.0025, show_default=True, help="Seconds of the driver a piece.")
@click.option("--out", type=click.Path(path_type=Path), help="A CSV file of the tables.")
def main(
    only: tuple[Part, ...],
    digits: int,
    decided: Path,
    images: int,
    speed: float,
    start: float,
    driver: float,
    out: Path | None,
) -> None:
    """Print how well times are predicted, and what many workers would bring."""
    keep_freed_memory()
    console, parts = Console(width=100), only or get_args(Part)
    samples = check(digits, console) if "check" in parts else {}
    if "simulate" in parts:
        own = {"fixed": np.full(1, float(N + N0)), "decide": samples_of(load_run(decided))}
        if "adaptive" in samples:
            own["adaptive"] = samples["adaptive"]
        rows = tables(own, images, speed, start, driver, console)
        if out is not None:
            with out.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
