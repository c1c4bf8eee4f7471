"""Certifying a dataset: order, checks before sampling, resumption, images that share batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deformrs import Rotation, SmoothedClassifier, Uniform
from deformrs.bars import Progress, ProgressChoice
from deformrs.certificate import Counts
from deformrs.data.preparation import pixels_digest
from deformrs.dataset import certify_dataset, select_indices
from deformrs.determinism import Replay
from deformrs.errors import InputError, ModelError
from deformrs.execution import Compiled
from deformrs.fingerprints import tensor_digest
from deformrs.inputs import ImageLike
from deformrs.models import SmallCNN
from deformrs.pieces import images_together
from deformrs.plan import SamplingPlan
from deformrs.runs import CERTIFICATES, CONFIG, load_run, read_config, read_times
from deformrs.runs.tally import Tally
from deformrs.sampling import Sampler
from deformrs.stopping import Stopping
from examples import smoothed

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(7)]
SIZES = [*IMAGES[:3], (torch.rand(1, 12, 14, generator=GENERATOR), 0), *IMAGES[4:]]


def test_results_come_in_order() -> None:
    results = list(certify_dataset(smoothed(), IMAGES, n=200, n0=20, alpha=0.01, seed=4, skip=2))
    assert [result.index for result in results] == [0, 2, 4, 6]
    assert [result.label for result in results] == [0, 2, 4, 1]
    for result in results:
        image = IMAGES[result.index][0]
        alone = smoothed().certify(image, 200, 20, 0.01, 4, index=result.index)
        assert result.certificate == alone
        assert result.plain == smoothed().classify([image])[0]
        assert result.pixels == tensor_digest(image)


@pytest.mark.parametrize(
    ("skip", "most", "indices"),
    [
        (1, None, [0, 1, 2, 3, 4, 5, 6]),
        (3, None, [0, 3, 6]),
        (3, 6, [0, 3]),
        (1, 99, list(range(7))),
    ],
)
def test_every_kth_of_the_first(skip: int, most: int | None, indices: list[int]) -> None:
    assert list(select_indices(7, skip, most)) == indices


BLOCKS = [3, 3, 3, 3, 0, 0, 1, 1, 1]
"""Labels that come class by class, not in the order of the classes."""


@pytest.mark.parametrize(
    ("skip", "most", "labels", "indices"),
    [
        (1, 4, BLOCKS, [0, 4, 6, 1]),
        (1, 9, BLOCKS, [0, 4, 6, 1, 5, 7, 2, 8, 3]),
        (1, 99, BLOCKS, [0, 4, 6, 1, 5, 7, 2, 8, 3]),
        (1, None, BLOCKS, list(range(9))),
        (2, None, BLOCKS, [0, 2, 4, 6, 8]),
        (2, 5, BLOCKS, [0, 4, 6]),
        (1, 4, [0, 0, 1, 1, 0], [0, 1, 2, 3]),
        (1, 2, [5, 5, 5], [0, 1]),
    ],
)
def test_images_that_come_class_by_class_are_spread_over_the_classes(
    skip: int, most: int | None, labels: list[int], indices: list[int]
) -> None:
    assert list(select_indices(len(labels), skip, most, labels)) == indices


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(0, 9),
)
def test_a_larger_maximum_adds_images_at_the_end(
    counts: list[int], skip: int, most: int, more: int
) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    few, many, every = (
        list(select_indices(len(labels), skip, maximum, labels))
        for maximum in (most, most + more, None)
    )
    assert many[: len(few)] == few
    assert set(many) <= set(every)
    assert len(few) == len(select_indices(len(labels), skip, most))
    share = Counter(labels[index] for index in few)
    available = Counter(labels[index] for index in every)
    for label, other in product(available, repeat=2):
        assert share[label] >= min(share[other] - 1, available[label])


class Labelled(list[tuple[torch.Tensor, int]]):
    """A dataset that knows its labels, as those of torchvision do."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, int]]) -> None:
        super().__init__(pairs)
        self.targets = torch.tensor([label for _, label in pairs])


def test_a_run_of_the_first_images_goes_on_with_images_of_all_classes(tmp_path: Path) -> None:
    images = Labelled([(image, k // 3) for k, (image, _) in enumerate(IMAGES)])
    list(certify_dataset(smoothed(), list(images), n=50, max=3, out=tmp_path / "a"))
    results = list(certify_dataset(smoothed(), images, n=50, max=4, out=tmp_path / "a"))
    assert [result.index for result in results] == [0, 3, 6, 1]
    assert [result.index for result in load_run(tmp_path / "a")] == [0, 1, 2, 3, 6]
    for result in results:  # an image's noise depends on its index alone
        alone = smoothed().certify(images[result.index][0], 50, index=result.index)
        assert result.certificate == alone
    list(certify_dataset(smoothed(), images, n=50, max=4, out=tmp_path / "b"))
    list(certify_dataset(smoothed(), images, n=50, max=6, out=tmp_path / "b"))
    list(certify_dataset(smoothed(), images, n=50, max=6, out=tmp_path / "c"))
    b, c = ((tmp_path / name / CERTIFICATES).read_bytes() for name in "bc")
    assert b == c


def test_guarantee_certify_dataset_depends_on_each_image_alone(tmp_path: Path) -> None:
    """Neither the other images nor an interruption change a line."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    list(certify_dataset(smoothed(), IMAGES, n=100, out=whole))
    for stop in (1, 3):
        going = certify_dataset(smoothed(), IMAGES, n=100, out=parts)
        for _ in range(stop):
            next(going)
        going.close()  # type: ignore[attr-defined]
        assert len(load_run(parts)) == stop
    again = list(certify_dataset(smoothed(), IMAGES, n=100, out=parts))
    assert (parts / CERTIFICATES).read_bytes() == (whole / CERTIFICATES).read_bytes()
    assert again == load_run(whole)
    assert set(read_times(parts)) == set(range(7))


def test_more_images_of_the_same_run_are_added(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=100, max=3, out=tmp_path / "a"))
    list(certify_dataset(smoothed(), IMAGES, n=100, out=tmp_path / "a"))
    list(certify_dataset(smoothed(), IMAGES, n=100, out=tmp_path / "b"))
    a, b = ((tmp_path / name / CERTIFICATES).read_bytes() for name in "ab")
    assert a == b


def only_third(folder: Path) -> None:
    """Write a run of three images that has the third only, as one of 0.1.0, without a request."""
    list(certify_dataset(smoothed(), IMAGES, n=50, max=3, out=folder))
    path = folder / CERTIFICATES
    path.write_text(path.read_text().splitlines(keepends=True)[2])
    config = read_config(folder)
    del config["requested"]
    (folder / CONFIG).write_text(json.dumps(config))


def test_a_run_is_resumed_on_other_images_than_it_has(tmp_path: Path) -> None:
    only_third(tmp_path)
    results = list(certify_dataset(smoothed(), IMAGES, n=50, max=2, out=tmp_path))
    assert [result.index for result in results] == [0, 1]
    assert sorted(result.index for result in load_run(tmp_path)) == [0, 1, 2]


def test_a_shorter_dataset_than_that_of_the_run_is_refused(tmp_path: Path) -> None:
    only_third(tmp_path)
    with pytest.raises(InputError, match="of 2 images, but the run in .* has image 2"):
        list(certify_dataset(smoothed(), IMAGES[:2], n=50, out=tmp_path))


def test_a_run_stores_the_integers_of_numpy(tmp_path: Path) -> None:
    n, one = np.int64(50), np.int64(1)
    list(certify_dataset(smoothed(), IMAGES, n=n, n0=n, seed=one, skip=one, max=1, out=tmp_path))  # type: ignore[arg-type]
    list(certify_dataset(smoothed(), IMAGES, n=50, n0=50, seed=1, max=2, out=tmp_path))
    assert len(load_run(tmp_path)) == 2


def test_a_run_names_its_model_by_the_weights(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=50, max=2, out=tmp_path))
    model = read_config(tmp_path)["model"]
    assert isinstance(model, dict)
    assert model.keys() == {"network", "parameters"}
    other = smoothed(SmallCNN(num_classes=5, width=4, seed=4).eval())
    with pytest.raises(InputError, match=r"model\.parameters: \w+ there, \w+ here"):
        list(certify_dataset(other, IMAGES, n=50, out=tmp_path))


@pytest.mark.parametrize("change", ["pixels", "label"])
def test_a_changed_image_is_refused(tmp_path: Path, change: str) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=50, max=2, out=tmp_path))
    image, label = IMAGES[1]
    other = (1 - image, label) if change == "pixels" else (image, label + 1)
    with pytest.raises(InputError, match="image 1 .* is not the one certified"):
        list(certify_dataset(smoothed(), [IMAGES[0], other], n=50, out=tmp_path))


def test_all_images_are_checked_before_one_is_sampled(tmp_path: Path) -> None:
    calls = 0
    seen: list[int] = []

    def model(images: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return images.flatten(1)[:, :5]

    g = SmoothedClassifier(model, Rotation(), Uniform(1.0), 5, check_model=False)
    bad = [*IMAGES[:3], (IMAGES[3][0] * 2, 3), (IMAGES[4][0], 5), (IMAGES[5][0], -1)]
    with pytest.raises(InputError, match=r"in 3 places, is faulty \(image 3 is .*image 4 is 5"):
        list(certify_dataset(g, bad, n=50, out=tmp_path, progress=Progress(checked=seen.append)))
    with pytest.raises(InputError, match=r"label of image 3 is 7; it must lie in \[0, 4\]"):
        list(certify_dataset(g, [*IMAGES[:3], (IMAGES[3][0], 7)], n=50))
    assert calls == 0
    assert seen == [1, 2, 3, 4, 5, 6]


def test_one_size_where_required() -> None:
    sizes = [IMAGES[0], (torch.rand(1, 12, 14, generator=GENERATOR), 0)]
    assert len(list(certify_dataset(smoothed(), sizes, n=20))) == 2
    with pytest.raises(InputError, match=r"image 1 is of size \(12, 14\); .* like the first"):
        list(certify_dataset(smoothed(), sizes, n=20, same_size=True))


def test_arguments_are_checked_before_the_first_result() -> None:
    for wrong in ({"n": 0}, {"n0": 0}, {"alpha": 2.0}, {"seed": -1}, {"skip": 0}, {"max": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            certify_dataset(smoothed(), IMAGES, **wrong)
    with pytest.raises(InputError, match="method"):
        certify_dataset(smoothed(), IMAGES, method="wald")
    with pytest.raises(InputError, match="the data is empty"):
        certify_dataset(smoothed(), [])


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = certify_dataset(smoothed(), IMAGES, n=20, out=tmp_path)
    next(first)
    with pytest.raises(InputError, match="being written by another process"):
        next(certify_dataset(smoothed(), IMAGES, n=20, out=tmp_path))
    assert len(list(first)) == 6


def test_progress_reports_every_sample() -> None:
    sampled: list[int] = []
    list(
        certify_dataset(
            smoothed(), IMAGES[:2], n=300, n0=50, progress=Progress(sampled=sampled.append)
        )
    )
    assert sum(sampled) == 700


def test_numpy_arrays_are_accepted() -> None:
    arrays = [(image.numpy(), label) for image, label in IMAGES]
    assert list(certify_dataset(smoothed(), arrays, n=50)) == list(
        certify_dataset(smoothed(), IMAGES, n=50)
    )
    assert pixels_digest(arrays[0][0]) == tensor_digest(IMAGES[0][0])
    assert pixels_digest(arrays[0][0]) != pixels_digest(np.float32(1) - arrays[0][0])


def test_a_changed_function_is_refused(tmp_path: Path) -> None:
    """A function has no weights to digest; its outputs tell."""
    sign = 1.0

    def model(images: torch.Tensor) -> torch.Tensor:
        return sign * images.flatten(1)[:, 30:35]

    g = SmoothedClassifier(model, Rotation(), Uniform(1.0), 5)
    list(certify_dataset(g, IMAGES, n=50, max=3, out=tmp_path))
    list(certify_dataset(g, IMAGES, n=50, max=4, out=tmp_path))
    sign = -1.0
    with pytest.raises(ModelError, match="results of two functions must not be mixed"):
        list(certify_dataset(g, IMAGES, n=50, out=tmp_path))
    assert len(load_run(tmp_path)) == 4


@pytest.mark.parametrize("images", [IMAGES, SIZES], ids=["one size", "two sizes"])
def test_results_are_those_of_each_image_alone(images: list[tuple[torch.Tensor, int]]) -> None:
    """For groups that are full, filled up, and larger than the data, cut into batches or not."""
    alone = list(certify_dataset(smoothed(), images, n=300, n0=30))
    assert len({result.certificate.counts for result in alone}) == len(images)
    for together, batch_size in ((2, 64), (3, 7), (7, 1000), (20, 64)):
        g = smoothed(batch_size=batch_size)
        assert list(certify_dataset(g, images, n=300, n0=30, together=together)) == alone


@pytest.mark.parametrize(("how", "last"), [("no", 1), ("default", 2)])
def test_a_single_image_left_over_is_alone_only_uncompiled(
    how: Compiled, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled program is for a single image, or for several: one run needs one."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    stopping = Stopping(radii=("10deg",))
    alone = list(certify_dataset(smoothed(), IMAGES, n=300, n0=30, stopping=stopping, together=1))
    sizes: list[int] = []

    class Watched(Sampler):
        def count(self, images: torch.Tensor, *arguments: object, **options: object) -> object:  # type: ignore[override]
            sizes.append(len(images))
            return super().count(images, *arguments, **options)  # type: ignore[arg-type]

    g = smoothed()
    g.sampler.__class__, g.sampler.compiled = Watched, how
    shared = list(certify_dataset(g, IMAGES, n=300, n0=30, stopping=stopping, together=3))
    assert set(sizes) == {3, last}, "seven images: three, three, and one; a copy beside it"
    assert shared == alone


def test_a_run_interrupted_within_a_group_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "whole"))
    whole = (tmp_path / "whole" / CERTIFICATES).read_bytes()
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "part"))
    lines = whole.splitlines(keepends=True)
    for kept in (1, 3, 5):
        (tmp_path / "part" / CERTIFICATES).write_bytes(b"".join(lines[:kept]) + lines[kept][:9])
        again = list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "part"))
        assert [result.index for result in again] == list(range(7))
        assert (tmp_path / "part" / CERTIFICATES).read_bytes() == whole


def test_more_images_are_added_as_in_one_run(tmp_path: Path) -> None:
    for most in (2, 5, None):
        list(certify_dataset(smoothed(), IMAGES, n=100, together=3, max=most, out=tmp_path / "a"))
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "b"))
    a, b = ((tmp_path / name / CERTIFICATES).read_bytes() for name in "ab")
    assert a == b
    assert len(read_times(tmp_path / "a")) == 7


def test_the_group_size_is_part_of_the_run(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, max=2, out=tmp_path))
    assert read_config(tmp_path)["together"] == 3
    with pytest.raises(InputError, match="together"):
        list(certify_dataset(smoothed(), IMAGES, n=100, together=4, out=tmp_path))


def test_a_changed_network_is_refused(tmp_path: Path) -> None:
    network = SmallCNN(num_classes=5, width=4).eval()
    list(certify_dataset(smoothed(network), IMAGES, n=100, together=3, max=4, out=tmp_path))

    def turned(module: object, inputs: object, scores: torch.Tensor) -> torch.Tensor:
        return scores.roll(1, dims=1)

    network.register_forward_hook(turned)
    with pytest.raises(ModelError, match="not the one stored when the run began"):
        list(certify_dataset(smoothed(network), IMAGES, n=100, together=3, out=tmp_path))
    assert len(load_run(tmp_path)) == 4


def test_one_image_at_a_time_on_a_cpu() -> None:
    assert images_together(smoothed(), IMAGES[0][0], SamplingPlan(10)) == 1


def test_few_large_images_share_batches_on_a_cpu() -> None:
    """Their results come together, and each takes seconds."""
    plan = SamplingPlan(1000, stopping=Stopping(radii=("10deg",)))
    small, large = torch.zeros(3, 32, 32), torch.zeros(3, 224, 224)
    assert images_together(smoothed(), small, plan) == 32
    assert images_together(smoothed(), large, plan) == 6


def test_a_run_goes_on_with_the_groups_it_was_begun_with(tmp_path: Path) -> None:
    stopping = Stopping(radii=("10deg",))
    options = {"n": 100, "stopping": stopping, "out": tmp_path}
    list(certify_dataset(smoothed(), IMAGES, together=3, max=2, **options))  # type: ignore[arg-type]
    list(certify_dataset(smoothed(), IMAGES, **options))  # type: ignore[arg-type]
    assert read_config(tmp_path)["together"] == 3
    assert len(load_run(tmp_path)) == len(IMAGES)


def test_a_group_that_is_not_full_is_filled_up() -> None:
    batches: list[list[int]] = []

    class Recorded(SmoothedClassifier):
        def sample_batch(
            self,
            images: Sequence[ImageLike] | torch.Tensor | NDArray[np.generic],
            indices: Sequence[int] | None,
            plan: SamplingPlan,
            progress: ProgressChoice = None,
            tally: Tally | None = None,
            replay: Replay | None = None,
        ) -> list[Counts]:
            batches.append(list(indices or ()))
            return super().sample_batch(images, indices, plan, progress, tally, replay)

    g = Recorded(smoothed().model, Rotation(), Uniform(2.0), 5)
    results = list(certify_dataset(g, IMAGES[:6], n=100, together=4))
    assert batches == [[0, 1, 2, 3], [4, 5, 5, 5]]
    assert [result.index for result in results] == [0, 1, 2, 3, 4, 5]


def test_images_that_cannot_share_batches_are_refused() -> None:
    with pytest.raises(InputError, match=r"must agree in shape and type"):
        smoothed().certify_batch([SIZES[0][0], SIZES[3][0]], [0, 1], SamplingPlan(10))
    with pytest.raises(InputError, match="together"):
        certify_dataset(smoothed(), IMAGES, together=0)
