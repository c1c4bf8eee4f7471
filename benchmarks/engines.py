"""Measure what Ray costs: samples per second, an empty piece, and the memory of the driver.

    python benchmarks/engines.py --out results/benchmarks/cpu.json
    python benchmarks/engines.py --only overhead --network resnet18 --images 8 --n 200

- overhead: workers of one thread (on GPUs: one worker a GPU) against this process with as many
  threads, in turns. Starting them is left out.
- piece: the time of a piece without work, for one worker: the most that a driver can hand out.
- memory: the most memory of the driver while it certifies that many images, each a piece; and while
  it reads them again, as a run that is resumed does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import click
import torch
from torch import Tensor

from deformrs import RayEngine, Rotation, SamplingPlan, SmoothedClassifier, Uniform
from deformrs.bars import Progress
from deformrs.cli.throughput import Case, machine, random_images, smoothed_classifier
from deformrs.config import Config
from deformrs.dataset import begin, certify_dataset
from deformrs.engines import Engine
from deformrs.execution import chosen_device
from deformrs.memory import keep_freed_memory
from record import Record

Measure = Literal["overhead", "piece", "memory"]
WORKERS = 2


def samples_per_second(
    classifier: SmoothedClassifier,
    images: list[tuple[Tensor, int]],
    n: int,
    engine: RayEngine | None = None,
) -> float:
    """Return the speed of certification into a folder, once every worker samples."""
    arrivals: list[tuple[float, int]] = []
    samples = 0

    def sampled(count: int) -> None:
        nonlocal samples
        samples += count

    def working(words: str) -> None:
        if engine is not None and words.startswith(f"{engine.workers} worker"):
            arrivals.append((time.perf_counter(), samples))

    with TemporaryDirectory() as folder:
        plan = SamplingPlan(n, 100, seed=0)
        progress = Progress(sampled=sampled, workers=working)
        _, results = begin(classifier, images, plan, out=folder, engine=engine, progress=progress)
        arrivals += [] if engine else [(time.perf_counter(), 0)]
        for _ in results:
            pass
    (began, before), ended = arrivals[0], arrivals[-1][0] if engine else time.perf_counter()
    return (samples - before) / (ended - began)


def overhead(name: str, number: int, n: int, repeats: int, device: str) -> Config:
    """Compare Ray with this process, in turns."""
    place = chosen_device(device)
    workers = torch.cuda.device_count() if place.type == "cuda" else WORKERS
    gpu = place.type == "cuda"
    side, channels = (28, 1) if name == "small_cnn" else (32, 3)
    case = Case(name, side, channels, 4096 if gpu else 256, n, number, 0, device=place)
    classifier = smoothed_classifier(case)
    images = [(image, 0) for image in random_images(number, channels, side)]
    engine = RayEngine(workers=workers, gpus_per_worker=float(gpu))
    torch.set_num_threads(workers)
    samples_per_second(classifier, images[:2], n)
    ratios, own, ray = [], [], []
    for _ in range(repeats):
        own.append(samples_per_second(classifier, images, n))
        ray.append(samples_per_second(classifier, images, n, engine))
        ratios.append(ray[-1] / own[-1])
    return {
        "measure": "overhead",
        "model": name,
        "images": number,
        "n": n,
        "workers": workers,
        "repeats": repeats,
        "process_samples_per_s": round(statistics.median(own)),
        "ray_samples_per_s": round(statistics.median(ray)),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def left_or_right(images: Tensor) -> Tensor:
    """Return logits that cost next to nothing."""
    return torch.stack([images[:, 0, 0, 0], images[:, 0, 0, -1]], dim=1)


class Trivial:
    """That many small images, made when they are accessed."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= self._number:
            raise IndexError(index)
        return torch.full((1, 4, 4), (index % 251) / 251), 0


def seconds_of_pieces(number: int, engine: Engine | None) -> float:
    """Return the seconds of that many pieces of one image and two samples."""
    classifier = SmoothedClassifier(left_or_right, Rotation(), Uniform(0.5), 2)
    with TemporaryDirectory() as folder:
        plan = SamplingPlan(20, 20, seed=0)
        _, results = begin(
            classifier, Trivial(number), plan, out=folder, engine=engine, progress=False
        )
        began = time.perf_counter()
        for _ in results:
            pass
        return time.perf_counter() - began


def piece(number: int) -> Config:
    """Return the time of a piece without work, on one worker and in this process."""
    torch.set_num_threads(1)
    own = seconds_of_pieces(number, None) / number
    ray = seconds_of_pieces(number, RayEngine(workers=1, gpus_per_worker=0.0)) / number
    return {
        "measure": "piece",
        "model": "none",
        "images": number,
        "process_ms": round(1e3 * own, 3),
        "ray_ms": round(1e3 * ray, 3),
    }


def memory(number: int) -> Config:
    """Return the most memory of a driver that certifies that many images, and reads them again."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--driver", str(number), "--out", folder]
        figures = []
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures.append([round(int(figure) / 1024) for figure in done.stdout.split()[-2:]])
    (before, most), (_, again) = figures
    return {
        "measure": "memory",
        "model": "none",
        "images": number,
        "before_mb": before,
        "peak_mb": most,
        "again_peak_mb": again,
    }


def drive(number: int, folder: Path) -> None:
    """Certify that many images, and print the memory before and at its peak, in KiB."""
    classifier = SmoothedClassifier(left_or_right, Rotation(), Uniform(0.5), 2)
    engine = RayEngine(workers=WORKERS, gpus_per_worker=0.0)
    results = certify_dataset(
        classifier, Trivial(number), n=20, n0=20, seed=0, out=folder, engine=engine, progress=False
    )
    next(results)
    before = peak()
    for _ in results:
        pass
    print(before, peak())


def peak() -> int:
    """Return the most memory of this process so far, in KiB; getrusage counts its parent too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@click.command()
@click.option("--only", type=click.Choice(get_args(Measure)), multiple=True)
@click.option("--network", "name", default="small_cnn", show_default=True)
@click.option("--images", default=24, show_default=True, help="Of the overhead.")
@click.option("--n", default=20_000, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--pieces", default=2000, show_default=True)
@click.option("--numbers", default="1000,10000,100000", show_default=True, help="Of the memory.")
@click.option("--out", type=click.Path(path_type=Path), help="The record to extend.")
@click.option("--driver", type=int, hidden=True)
def main(
    only: tuple[Measure, ...],
    name: str,
    images: int,
    n: int,
    repeats: int,
    device: str,
    pieces: int,
    numbers: str,
    out: Path | None,
    driver: int | None,
) -> None:
    """Print a line for each measurement."""
    if driver is not None:
        assert out is not None
        drive(driver, out)
        return
    keep_freed_memory()  # as the command line does, and the workers
    record = Record(machine(chosen_device(device)), out)
    measures = only or get_args(Measure)

    def add(entry: Config) -> None:
        record.add("engines", entry)
        print(", ".join(f"{key} {value}" for key, value in entry.items()), flush=True)

    if "overhead" in measures:
        add(overhead(name, images, n, repeats, device))
    if "piece" in measures:
        add(piece(pieces))
    if "memory" in measures:
        for text in numbers.split(","):
            add(memory(int(text)))


if __name__ == "__main__":
    main()
