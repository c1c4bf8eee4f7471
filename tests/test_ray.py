"""Certification on a real Ray: the same bytes, whatever dies meanwhile."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

from commands import ENVIRONMENT, deformrs, run_inside
from deformrs import RayEngine, Rotation, SmoothedClassifier, Uniform
from deformrs.bars import Progress
from deformrs.config import Config
from deformrs.data import load_data
from deformrs.data.preparation import Preparation
from deformrs.dataset import certify_dataset
from deformrs.engines import ray as ray_engine
from deformrs.engines import workers
from deformrs.errors import InputError, ModelError, ScarcityWarning
from deformrs.models import SmallCNN
from deformrs.runs import CERTIFICATES, CONFIG, Result, load_run
from deformrs.runs.backlog import BACKLOG
from deformrs.stopping import Stopping

ray: Any = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "default::deformrs.errors.ScarcityWarning",  # of workers that die, which is meant here
)

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(24)]
WAYS: dict[str, dict[str, Any]] = {
    "fixed": {"n": 1500},
    "decided": {"n": 3000, "stopping": Stopping(radii=("10deg", "40deg")), "together": 4},
    "adaptive": {"n": 4000, "stopping": Stopping(tolerance=0.2), "together": 3},
}


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """A Ray that the tests of this file share: engines use the one that is there."""
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of Ray's own log files
        ray.shutdown()
        gc.collect()


def network() -> SmallCNN:
    return SmallCNN(num_classes=5, width=4, seed=3).eval()


def smoothed(model: Callable[[Tensor], Tensor] | None = None) -> SmoothedClassifier:
    return SmoothedClassifier(model or network(), Rotation(), Uniform(2.0), 5, batch_size=64)


def certify(out: Path | None, engine: RayEngine | None = None, **options: Any) -> list[Result]:
    settings: dict[str, Any] = {"n": 1500, "n0": 50, "seed": 7} | options
    classifier = settings.pop("classifier", None) or smoothed()
    images = settings.pop("images", IMAGES)
    return list(certify_dataset(classifier, images, out=out, engine=engine, **settings))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "times.tsv"}


@pytest.mark.parametrize("way", WAYS)
def test_two_workers_give_the_same_bytes_as_one_process(tmp_path: Path, way: str) -> None:
    own = certify(tmp_path / "one", **WAYS[way])
    words: list[str] = []
    samples: list[int] = []
    other = certify(
        tmp_path / "two",
        RayEngine(workers=2),
        progress=Progress(workers=words.append, sampled=samples.append),
        **WAYS[way],
    )
    assert other == own
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert files(tmp_path / "two").keys() == {CERTIFICATES, CONFIG}
    assert re.fullmatch(r"[12] workers?, \d+% busy", words[-1])
    assert sum(samples) == sum(r.certificate.counts.n0 + r.certificate.counts.n for r in own)


def test_without_a_folder_the_results_are_the_same() -> None:
    assert certify(None, RayEngine(workers=2), n=200) == certify(None, n=200)


def test_a_run_goes_on_on_ray_and_in_one_process(tmp_path: Path) -> None:
    certify(tmp_path / "one")
    two = tmp_path / "two"
    certify(two, max=5)
    certify(two, RayEngine(workers=2), max=14)
    certify(two)
    assert files(tmp_path / "one") == files(two)
    assert certify(two, RayEngine(workers=2)) == load_run(two)


class Slow(nn.Module):
    """A network that takes its time, so that a worker can be killed in the middle of a piece."""

    def __init__(self, folder: Path, seconds: float = 0.05) -> None:
        super().__init__()
        self.inner, self.folder, self.seconds = network(), str(folder), seconds

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(self.seconds)
        Path(self.folder, str(os.getpid())).touch()
        scores: Tensor = self.inner(images)
        return scores


def test_a_worker_killed_five_times_in_the_middle_of_its_piece(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    model = Slow(tmp_path / "pids").eval()
    quick = Slow(tmp_path / "pids", seconds=0.0).eval()  # the same function
    expected = certify(tmp_path / "one", classifier=smoothed(quick), max=12)
    for path in (tmp_path / "pids").iterdir():
        path.unlink()
    killed: list[int] = []

    def kill(samples: int) -> None:
        """After every second piece, kill a worker that samples one."""
        if len(killed) >= 5:
            return
        for path in sorted((tmp_path / "pids").iterdir(), key=lambda p: -p.stat().st_mtime):
            path.unlink()
            if int(path.name) not in (*killed, os.getpid()):
                os.kill(int(path.name), signal.SIGKILL)
                killed.append(int(path.name))
                return

    results = certify(
        tmp_path / "two",
        RayEngine(workers=2),
        classifier=smoothed(model),
        max=12,
        progress=Progress(sampled=kill),
    )
    assert len(set(killed)) == 5
    assert results == expected
    assert files(tmp_path / "one") == files(tmp_path / "two")


AT_LENGTH = pytest.mark.skipif(
    "DEFORMRS_AT_LENGTH" not in os.environ, reason="make soak runs it: it takes long"
)


class Fatal(nn.Module):
    """A network that fails for a bright image: raises, or ends its process."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.how, self.home = network(), how, os.getpid()

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.inner(images)
        if not (images.amax(dim=(1, 2, 3)) > 0.999).any():
            return scores
        if self.how == "dies elsewhere" and os.getpid() == self.home:
            return scores
        if self.how.startswith("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raises":
            raise RuntimeError("a bad day")
        return scores * torch.nan


POISON = torch.ones(1, 12, 12)
DIM = [(0.9 * image, label) for image, label in IMAGES[:8]]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "dead"),
        ("raises", "RuntimeError: a bad day"),
        ("is undefined", "a logit of the model for the deformed image 3 is NaN or infinite"),
    ],
)
def test_a_poisoned_image_is_named_after_the_others_are_done(
    tmp_path: Path, how: str, reason: str
) -> None:
    images = [*DIM[:3], (POISON, 0), *DIM[4:]]
    got: list[Result] = []
    results = certify_dataset(
        smoothed(Fatal(how).eval()),
        images,
        n=300,
        seed=7,
        out=tmp_path / "two",
        engine=RayEngine(workers=2),
    )
    with pytest.raises(ModelError, match="certification of image 3 is not finished") as error:
        got.extend(results)
    assert reason in str(error.value)
    assert [result.index for result in got] == [0, 1, 2, 4, 5, 6, 7]
    assert [result.index for result in load_run(tmp_path / "two")] == [0, 1, 2]
    waiting = (tmp_path / "two" / BACKLOG).read_text().splitlines()
    assert {json.loads(line)["index"] for line in waiting} >= {4, 5, 6, 7}
    assert 3 not in {json.loads(line)["index"] for line in waiting}


def test_a_model_that_fails_for_every_image_ends_the_run(tmp_path: Path) -> None:
    """Not after three attempts at each of thousands."""
    images = [(POISON, 0)] * 40

    class Undefined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = network(), 0

        def forward(self, images: Tensor) -> Tensor:
            self.calls += 1
            scores: Tensor = self.inner(images)
            return scores if self.calls <= 12 else scores * torch.nan  # after it was checked

    said = (
        "each of the first 10 pieces .from the images .*a logit of the model for the deformed image"
    )
    with pytest.raises(ModelError, match=said):
        certify(
            tmp_path,
            RayEngine(workers=1),
            images=images,
            n=300,
            classifier=smoothed(Undefined().eval()),
        )
    assert not load_run(tmp_path)


class OutOfMemory(nn.Module):
    """A network that only the first process to sample has the memory for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner, self.folder, self.calls = network(), str(folder), 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        claim = Path(self.folder, "claimed")
        if self.calls > 12:  # after it was checked
            if not claim.exists():
                claim.write_text(str(os.getpid()))
            if claim.read_text() != str(os.getpid()):
                raise torch.OutOfMemoryError("out of memory")
        time.sleep(0.01)
        scores: Tensor = self.inner(images)
        return scores


@AT_LENGTH
def test_a_worker_without_memory_begins_anew_and_is_no_longer_used(tmp_path: Path) -> None:
    expected = certify(tmp_path / "one", n=3000)
    model = OutOfMemory(tmp_path).eval()
    with pytest.warns(ScarcityWarning) as notes:
        results = certify(
            tmp_path / "two", RayEngine(workers=2), classifier=smoothed(model), n=3000
        )
    assert results == expected
    said = "\n".join(str(note.message) for note in notes)
    assert "images of 1 x 12 x 12 do not fit into the memory of the device" in said
    assert "is not used (3 pieces failed there and succeeded elsewhere)" in said


@dataclass(frozen=True)
class Drifting:
    """Loads another model on every worker but the first."""

    folder: str
    change: str

    def __call__(self, image: Tensor) -> tuple[SmoothedClassifier, Config]:
        first = not Path(self.folder, "first").exists()
        Path(self.folder, "first").touch()
        if self.change == "weights":
            model = SmallCNN(num_classes=5, width=4, seed=3 if first else 4).eval()
            return smoothed(model), {}
        if self.change == "function":
            inner = network()

            def function(images: Tensor) -> Tensor:
                scores: Tensor = inner(images)
                return scores if first else -scores

            return smoothed(function), {}
        if first:
            return smoothed(), {}
        raise InputError("the model", "not here", "must be there", "copy it")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("weights", r"not the same as the first one: model.parameters: \w+ there, \w+ here"),
        ("function", "its model predicts other classes for the same samples"),
        ("missing", "the model is not here; it must be there: copy it"),
    ],
)
def test_a_worker_with_another_model_is_refused(tmp_path: Path, change: str, reason: str) -> None:
    engine = RayEngine(workers=2, load=Drifting(str(tmp_path), change))
    with pytest.warns(ScarcityWarning, match=f"is not used .{reason}"):
        results = certify(tmp_path / "run", engine, n=3000)
    assert len(results) == 24


@dataclass(frozen=True)
class Other:
    """Loads a classifier that is not the driver's."""

    what: str

    def __call__(self, image: Tensor) -> tuple[SmoothedClassifier, Config]:
        own = smoothed()
        if self.what == "noise":
            return replace(own, noise=Uniform(0.01)), {}
        if self.what == "padding":
            return replace(own, padding="border"), {}
        if self.what == "weights":
            return smoothed(SmallCNN(num_classes=5, width=4, seed=4).eval()), {}
        field = Rotation.field

        def reversed_field(self: Rotation, params: Tensor, size: tuple[int, int]) -> Tensor:
            return field(self, -params, size)

        Rotation.field = reversed_field  # type: ignore[assignment]  # in the worker's process
        return own, {}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("noise", "noise.scale: 0.01 there, 2.0 here"),
        ("padding", "padding: border there, zeros here"),
        ("weights", r"model of the workers is not the one found here \(parameters: \w+ there"),
        ("deformation", "its deformation reads elsewhere under the same noise"),
    ],
)
def test_guarantee_setup_a_worker_with_another_noise_or_deformation_is_refused(
    tmp_path: Path, what: str, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        certify(tmp_path / "run", RayEngine(workers=1, load=Other(what)), n=300)
    assert not (tmp_path / "run").exists()


def test_an_address_beside_a_connection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="while this process is connected to a Ray already"):
        certify(tmp_path / "run", RayEngine(address="10.255.255.1:6379"))


def test_few_pieces_for_many_workers_are_noted(tmp_path: Path) -> None:
    with pytest.warns(ScarcityWarning, match="2 pieces of 12 images for 2 workers: .* 6 images"):
        certify(tmp_path / "run", RayEngine(workers=2), n=300, together=12)


def test_other_versions_are_refused_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "__version__", "0.0.7")
    with pytest.raises(ModelError, match="other versions: deformrs: .* there, 0.0.7 here") as error:
        certify(tmp_path, RayEngine(workers=1))
    assert "install the same versions on all machines" in str(error.value)


def test_a_model_that_no_worker_can_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "first").touch()
    engine = RayEngine(workers=1, load=Drifting(str(tmp_path), "missing"))
    with pytest.raises(InputError, match="the model is not here; it must be there: copy it"):
        certify(tmp_path / "run", engine)
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    lock = __import__("threading").Lock()

    def model(images: Tensor) -> Tensor:
        with lock:
            scores: Tensor = network()(images)
            return scores

    with pytest.raises(InputError, match="the classifier is not to be copied to another process"):
        certify(tmp_path, RayEngine(workers=1), classifier=smoothed(model))


def test_workers_read_the_files_that_they_find(tmp_path: Path) -> None:
    from PIL import Image

    for k, (image, label) in enumerate(IMAGES[:8]):
        folder = tmp_path / "photos" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (image[0] * 255).byte().numpy()
        Image.fromarray(pixels).save(folder / f"{k}.png")
    images = load_data(tmp_path / "photos", Preparation(channels=1), num_classes=5)
    assert images.reads_files
    pieces: list[tuple[int, ...]] = []
    original = ray_engine._RaySession._piece

    def record(self: Any, indices: tuple[int, ...]) -> Any:
        pieces.append(indices)
        return original(self, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_engine._RaySession, "_piece", record)
        seen = certify(tmp_path / "two", RayEngine(workers=2), images=images, n=300)
        assert not pieces
        sent = certify(tmp_path / "three", RayEngine(workers=2), images=IMAGES[:8], n=300)
        assert sorted(pieces) == [(k,) for k in range(8)]
    assert seen == certify(tmp_path / "one", images=images, n=300)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert sent == certify(None, images=IMAGES[:8], n=300)


def test_workers_that_find_no_room_keep_nothing_waiting(tmp_path: Path) -> None:
    """Three fit this machine. A piece that fails on all of them is not kept for the others."""
    images = [*DIM[:3], (POISON, 0), *DIM[4:]]
    model = Fatal("raises").eval()
    with pytest.raises(ModelError, match="certification of image 3 is not finished"):
        certify(tmp_path, RayEngine(workers=6), images=images, classifier=smoothed(model), n=300)
    assert len(load_run(tmp_path)) == 3


class Broken(nn.Module):
    """A network whose first process to sample, and those of the same actor after it, die of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner, self.folder, self.calls = network(), str(folder), 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 12:  # after it was checked
            own = ray.get_runtime_context().get_actor_id()
            claim = Path(self.folder, "broken")
            try:
                with claim.open("x") as file:
                    file.write(own)
            except FileExistsError:
                pass
            if claim.read_text() == own:
                with Path(self.folder, "deaths").open("a") as file:
                    file.write("died\n")
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
        scores: Tensor = self.inner(images)
        return scores


@AT_LENGTH
def test_pieces_that_a_broken_worker_loses_wait_for_another(tmp_path: Path) -> None:
    expected = certify(tmp_path / "one", n=300)
    model = Broken(tmp_path).eval()
    found = certify(tmp_path / "two", RayEngine(workers=2), classifier=smoothed(model), n=300)
    assert found == expected
    assert (tmp_path / "deaths").read_text().count("died") <= 6


def test_an_image_that_kills_whoever_compares_the_models_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "DEATHS", 2)
    images = [DIM[0], (POISON, 0), *DIM[2:]]
    dying = smoothed(Fatal("dies elsewhere").eval())
    certify(tmp_path, images=images, max=4, classifier=dying, n=300, together=2)
    with pytest.raises(ModelError, match="must sample the image 0 again, to compare the models"):
        certify(tmp_path, RayEngine(workers=1), images=images, classifier=dying, n=300, together=2)
    assert len(load_run(tmp_path)) == 4


def test_an_iterator_that_is_never_begun_leaves_no_actor(tmp_path: Path) -> None:
    results = certify_dataset(smoothed(), IMAGES, n=300, engine=RayEngine(workers=1))
    del results
    gc.collect()
    assert ray.available_resources()["CPU"] == 3


@pytest.mark.parametrize("gpus", [-1.0, 1.5, float("nan")])
def test_impossible_engines_are_refused(gpus: float) -> None:
    with pytest.raises(InputError, match="the number of GPUs of a worker"):
        RayEngine(gpus_per_worker=gpus)
    with pytest.raises(InputError, match="the number of workers is 0"):
        RayEngine(workers=0)


def test_a_model_that_changes_is_found_by_its_worker(tmp_path: Path) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = network(), 0

        def forward(self, images: Tensor) -> Tensor:
            self.calls += 1
            scores: Tensor = self.inner(images)
            return -scores if self.calls > 150 else scores

    with pytest.raises(ModelError, match="is not repeated .* must be a fixed function"):
        certify(tmp_path, RayEngine(workers=1), classifier=smoothed(Changing().eval()), n=4000)
    assert (tmp_path / "unsound.txt").exists()


# ---------------------------------------------------------------- the command line


COMMAND = (
    *("certify", "--model", "net", "--data", "digits", "--deformation", "rotation"),
    *("--noise", "uniform:30deg", "--n", "3000", "--n0", "50", "--max", "30", "--seed", "1"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from deformrs.models import save_model

    save_model(tmp_path / "net", SmallCNN(num_classes=10, width=4), Preparation(channels=1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_line_gives_the_same_bytes(place: Path) -> None:
    run_inside(*COMMAND, "--out", "one")
    said = deformrs(*COMMAND, "--workers", "2", "--out", "two", cwd=place)
    assert "starting workers" in said.stdout
    assert "time           not estimated: workers sample at their own speed" in said.stdout
    assert "2 workers, " in said.stdout
    assert files(place / "one") == files(place / "two")
    assert "verified: 1 run" in run_inside("verify", "two")


def test_options_of_ray_need_its_engine(place: Path) -> None:
    done = deformrs(*COMMAND, "--engine", "process", "--workers", "2", "--out", "x", code=1)
    assert "--workers is 2; it is an option of the engine ray: add --engine ray" in done.stderr
    words = [sys.executable, "-m", "deformrs", *COMMAND, "--address", "127.0.0.1:1", "--out", "x"]
    said = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "error: the address is '127.0.0.1:1', where no Ray answers (Connection" in said.stderr


def started(place: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command line on Ray, and wait until a third of the images is done."""
    command = [sys.executable, "-m", "deformrs", *COMMAND, "--workers", "2", *options]
    process = subprocess.Popen(
        command,
        cwd=place,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    results = place / options[-1] / CERTIFICATES
    began = time.monotonic()
    while not results.exists() or results.read_bytes().count(b"\n") < 10:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 120
        time.sleep(0.02)
    return process


def left(processes: list[psutil.Process], seconds: float = 30) -> list[str]:
    """Return which of these processes are still running after some time."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [name for process in alive if (name := process.name()) not in AGENTS]


AGENTS = ("ray::DashboardAgent", "ray::DashboardA", "ray::RuntimeEnvAgent", "ray::RuntimeEnv")
"""Ray's own, which notice a minute later that their machine's daemon was killed with the driver."""


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_driver_that_ends_leaves_no_process_and_is_resumed(place: Path, how: str) -> None:
    """A kill of the driver alone; Ctrl-C, which a terminal sends to the whole group."""
    process = started(place, "--n", "9000", "--out", "two")
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 4
    if how == "killed":
        process.kill()
        process.communicate()
        assert left(children, seconds=5) == []
    else:
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "error: interrupted; what was done is kept" in said
        assert psutil.wait_procs(children, timeout=5)[1] == []
    assert len(load_run(place / "two")) < 30
    deformrs(*COMMAND, "--n", "9000", "--workers", "2", "--out", "two", cwd=place)
    run_inside(*COMMAND, "--n", "9000", "--out", "one")
    assert files(place / "one") == files(place / "two")
