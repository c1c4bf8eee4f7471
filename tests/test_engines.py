"""Engines: outcomes in any order, pieces that fail, and results that wait for their turn."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deformrs import SmoothedClassifier
from deformrs.bars import Progress
from deformrs.dataset import certify_dataset
from deformrs.determinism import Difference
from deformrs.engines import Engine, Outcome, Session, Work, Worker
from deformrs.engines.engine import TallyOf
from deformrs.engines.queue import Queue
from deformrs.errors import InputError, ModelError, ScarcityWarning
from deformrs.runs import (
    CERTIFICATES,
    CONFIG,
    Result,
    Run,
    load_run,
    read_config,
    read_run,
    read_times,
)
from deformrs.runs.backlog import BACKLOG
from deformrs.runs.folder import UNSOUND
from deformrs.stopping import Stopping
from examples import smoothed

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(7)]
WAYS: dict[str, dict[str, Any]] = {
    "fixed": {"n": 300, "n0": 20},
    "in twos": {"n": 300, "n0": 20, "together": 2},
    "decided": {"n": 300, "stopping": Stopping(radii=("10deg",)), "together": 3},
}


@dataclass(frozen=True)
class Reordered(Engine):
    """Samples in this process, and yields the outcomes in another order."""

    order: tuple[int, ...] = (3, 1, 0, 2)
    """The places of the outcomes among the first ones; the others come before them, last first."""
    failing: frozenset[int] = frozenset()
    """The images whose pieces fail."""
    dies_after: int = 10**9
    """The outcomes after which the driver is interrupted."""
    changed: Difference | None = None

    def start(self, work: Work, classifier: SmoothedClassifier) -> Session:
        return _ReorderedSession(self, Worker(work, classifier))


class _ReorderedSession(Session):
    closed = False

    def __init__(self, engine: Reordered, worker: Worker) -> None:
        self.engine, self.worker, self.setup = engine, worker, worker.setup()

    def sample(
        self, pieces: Iterable[Sequence[int]], progress: Progress, tally_of: TallyOf
    ) -> Iterator[Outcome]:
        left = [*pieces]
        first = [left[place] for place in self.engine.order if place < len(left)]
        others = [piece for piece in reversed(left) if piece not in first]
        for number, indices in enumerate([*others, *first]):
            if number == self.engine.dies_after:
                raise KeyboardInterrupt
            if self.engine.failing.intersection(indices):
                error = ModelError("the model", "on strike", "must work", "wait")
                yield Outcome(tuple(indices), error=error)
                continue
            outcome = self.worker.sample(self.worker.read(indices))
            yield replace(outcome, difference=self.engine.changed)

    def check_same_model(self, indices: Sequence[int], done: Mapping[int, Result]) -> None:
        self.worker.check_same_model(self.worker.read(indices), done)

    def changed(self) -> Difference | None:
        return self.worker.changed(end=True)

    def close(self) -> None:
        _ReorderedSession.closed = True


def certify(out: Path | None, engine: Engine | None = None, **options: Any) -> list[Result]:
    settings = {"n": 300, "n0": 20, "seed": 7} | options
    return list(certify_dataset(smoothed(), IMAGES, out=out, engine=engine, **settings))


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a run that equal runs have in common."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "times.tsv"}


@pytest.mark.parametrize("way", WAYS)
def test_outcomes_in_any_order_give_the_same_bytes(tmp_path: Path, way: str) -> None:
    own = certify(tmp_path / "one", **WAYS[way])
    other = certify(tmp_path / "two", Reordered(), **WAYS[way])
    assert other == own == certify(None, Reordered(), **WAYS[way])
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert files(tmp_path / "two").keys() == {CERTIFICATES, CONFIG}
    assert read_times(tmp_path / "two").keys() == set(range(7))
    assert _ReorderedSession.closed


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("finish", [Reordered(), Reordered(order=(2, 0)), None])
@pytest.mark.parametrize("dies_after", [0, 1, 2])
def test_guarantee_set_aside_and_add_keep_what_a_dead_driver_had(
    tmp_path: Path, way: str, finish: Engine | None, dies_after: int
) -> None:
    """Results that wait for their turn are on the disk: nothing is sampled twice."""
    certify(tmp_path / "one", **WAYS[way])
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "two", Reordered(dies_after=dies_after), **WAYS[way])
    sampled: list[tuple[int, ...]] = []
    original = Worker.sample

    def record(self: Worker, piece: Any, *arguments: Any) -> Outcome:
        sampled.append(piece.indices)
        return original(self, piece, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "sample", record)
        certify(tmp_path / "two", finish, **WAYS[way])
    pieces = -(-7 // WAYS[way].get("together", 1))
    assert len(sampled) == pieces - dies_after
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_the_seed_of_a_run_with_a_backlog_alone_is_kept(tmp_path: Path, random_seeds: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, Reordered(dies_after=2), seed=None)
    assert (tmp_path / CERTIFICATES).read_bytes() == b""
    assert len((tmp_path / BACKLOG).read_bytes().splitlines()) == 2
    first = certify(tmp_path, seed=None)
    again = certify(tmp_path, seed=None)
    assert again == first
    assert not (tmp_path / BACKLOG).exists()


def test_a_backlog_that_does_not_belong_to_the_run_is_sampled_again(tmp_path: Path) -> None:
    expected = certify(tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "two", Reordered(dies_after=3))
    backlog = tmp_path / "two" / BACKLOG
    lines = backlog.read_bytes().splitlines(keepends=True)
    forged = lines[0].replace(b'"prediction": ', b'"prediction": 1', 1)
    # A kill may have left part of a line.
    backlog.write_bytes(forged + b"nonsense\n" + lines[1] + lines[2][:-40])
    with pytest.warns(ScarcityWarning, match="2 lines of .*backlog.jsonl are damaged or of other"):
        assert certify(tmp_path / "two") == expected
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_backlog_of_another_model_or_of_other_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, Reordered(dies_after=3))
    other = [*IMAGES[:-1], (IMAGES[0][0], IMAGES[-1][1])]
    with pytest.raises(InputError, match="image 6 .* not the one certified"):
        list(certify_dataset(smoothed(), other, n=300, n0=20, seed=7, out=tmp_path))

    def another(images: torch.Tensor) -> torch.Tensor:
        return -smoothed().model(images)

    with pytest.raises(KeyboardInterrupt):
        list(
            certify_dataset(
                smoothed(another),
                IMAGES,
                n=300,
                seed=7,
                out=tmp_path / "function",
                engine=Reordered(dies_after=3),
            )
        )

    def other_function(images: torch.Tensor) -> torch.Tensor:
        return smoothed().model(images)

    other_function.__qualname__ = another.__qualname__
    with pytest.raises(ModelError, match="not the one stored when the run began"):
        list(
            certify_dataset(
                smoothed(other_function),
                IMAGES,
                n=300,
                seed=7,
                out=tmp_path / "function",
            )
        )


def test_a_backlog_is_not_lost_to_another_number_of_samples(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, Reordered(dies_after=3))
    assert (tmp_path / CERTIFICATES).read_bytes() == b""
    before = (tmp_path / BACKLOG).read_bytes()
    with pytest.raises(InputError, match="n: 300 there, 400 here"):
        certify(tmp_path, n=400)
    assert (tmp_path / BACKLOG).read_bytes() == before


def test_outcomes_that_come_twice_are_dropped(tmp_path: Path) -> None:
    class Twice(_ReorderedSession):
        def sample(self, *arguments: Any) -> Iterator[Outcome]:
            outcomes = [*super().sample(*arguments)]
            return iter([outcome for outcome in outcomes for _ in range(2)])

    @dataclass(frozen=True)
    class Repeating(Reordered):
        def start(self, work: Work, classifier: SmoothedClassifier) -> Session:
            return Twice(self, Worker(work, classifier))

    expected = certify(tmp_path / "one")
    assert certify(tmp_path / "two", Repeating()) == expected == certify(None, Repeating())
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_folder_that_is_in_use_closes_the_engine(tmp_path: Path) -> None:
    _ReorderedSession.closed = False
    results = certify_dataset(smoothed(), IMAGES, n=300, out=tmp_path, engine=Reordered())
    law = smoothed().noise
    with (
        Run.open(tmp_path, law, 0.001, "auto", {}),
        pytest.raises(InputError, match="being written by another process"),
    ):
        next(results)
    assert _ReorderedSession.closed


def test_a_linked_backlog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "secret").write_text("kept\n")
    (tmp_path / "run" / BACKLOG).symlink_to(tmp_path / "secret")
    with pytest.raises((InputError, OSError), match="link"):
        certify(tmp_path / "run")
    assert (tmp_path / "secret").read_text() == "kept\n"


def test_the_run_goes_on_to_other_pieces_and_names_those_that_failed(tmp_path: Path) -> None:
    expected = certify(tmp_path / "one")
    got: list[Result] = []
    engine = Reordered(failing=frozenset({1, 4}))
    two = tmp_path / "two"
    results = certify_dataset(smoothed(), IMAGES, n=300, n0=20, seed=7, out=two, engine=engine)
    with pytest.raises(ModelError, match="certification of image 1, image 4 is not finished") as e:
        got.extend(results)
    assert "the model is on strike" in str(e.value)
    assert "the results of the others are kept" in str(e.value)
    assert got == [result for result in expected if result.index not in (1, 4)]
    # The lines are in order, so those after the first failure wait.
    assert [result.index for result in load_run(tmp_path / "two")] == [0]
    assert read_run(tmp_path / "two").is_incomplete
    assert certify(tmp_path / "two") == expected
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_predictions_that_a_worker_does_not_repeat_end_the_run(tmp_path: Path) -> None:
    engine = Reordered(changed=Difference(2, changed=3, total=20))
    with pytest.raises(ModelError, match="the prediction for image 2 is not repeated"):
        certify(tmp_path, engine)
    assert (tmp_path / UNSOUND).exists()
    assert _ReorderedSession.closed


def test_a_piece_that_failed_goes_to_a_worker_that_has_not_tried_it() -> None:
    queue = Queue([(0,), (1,), (2,)])
    first = queue.take("one", ["one", "two"])
    assert first is not None
    first.tried.append("one")
    queue.try_again(first)
    second = queue.take("one", ["one", "two"])
    assert second is not None
    assert second.indices == (1,)
    assert queue.take("two", ["one", "two"]) is first
    queue.try_again(first)
    assert queue.take("one", ["one"]) is first, "nobody else is left"
    queue.put_back([second])
    assert [task.indices for task in iter(lambda: queue.take("one", ["one"]), None)] == [(1,), (2,)]
    assert not queue


def alive(kind: type) -> int:
    """Count the objects of a class in this process."""
    gc.collect()
    return sum(type(held) is kind for held in gc.get_objects())


def test_a_run_that_is_opened_again_keeps_no_results_in_memory(tmp_path: Path) -> None:
    results = certify(tmp_path)
    config, law = read_config(tmp_path), results[0].certificate.law
    before = alive(Result)
    with Run.open(tmp_path, law, 0.001, str(config["method"]), config) as run:  # type: ignore[arg-type]
        assert sorted(run.done) == list(range(7))
        assert alive(Result) == before
        assert [result.index for result in run.read([5, 2, 99])] == [5, 2]
    assert load_run(tmp_path)[2:3] == certify(tmp_path)[2:3]


def swapped(path: Path) -> None:
    """Swap the second and the third line, which are of one length."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]
    path.write_bytes(b"".join(lines))


def replaced(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"label": 1', b'"label": 0'))


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize("name", [CERTIFICATES, BACKLOG])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (swapped, "it has changed since it was opened"),
        (replaced, "it has changed since it was opened: ValueError.'changed"),
        (Path.unlink, "it has changed since it was opened: FileNotFound"),
        (linked, "is a link; it must be a regular file"),
    ],
)
def test_lines_that_change_while_a_run_is_open_are_noticed(
    tmp_path: Path, name: str, change: Callable[[Path], None], said: str
) -> None:
    results = certify(tmp_path)
    config, law = read_config(tmp_path), results[0].certificate.law
    if name == BACKLOG:
        (tmp_path / CERTIFICATES).rename(tmp_path / BACKLOG)
        (tmp_path / CERTIFICATES).touch()
        for kept in ("times.tsv", "times.tsv.xz"):
            (tmp_path / kept).unlink(missing_ok=True)
    with Run.open(tmp_path, law, 0.001, str(config["method"]), config) as run:  # type: ignore[arg-type]
        change(tmp_path / name)
        with pytest.raises(InputError, match=said):
            run.read(range(7))


def test_a_backlog_keeps_only_places_in_memory(tmp_path: Path) -> None:
    results = certify(None)
    config: Any = {"n": 300, "n0": 20, "seed": 7}
    law, method = results[0].certificate.law, "auto"
    with Run.open(tmp_path, law, 0.001, method, config, range(7)) as run:  # type: ignore[arg-type]
        run.set_aside(results[3:6])
        run.set_aside(results[6:])
        assert sorted(run.backlog) == [3, 4, 5, 6]
        assert [result.index for result in run.backlog.read([5, 3, 0])] == [5, 3]
        run.add_all(results[:4])
        assert sorted(run.backlog) == [4, 5, 6]
    assert os.path.exists(tmp_path / BACKLOG)
    with Run.open(tmp_path, law, 0.001, method, config, range(7)) as run:  # type: ignore[arg-type]
        assert sorted(run.backlog) == [4, 5, 6]
        run.add_all(run.backlog.read([4, 5, 6]))
    assert not os.path.exists(tmp_path / BACKLOG)
    assert [result.index for result in load_run(tmp_path)] == list(range(7))
