"""Images that share batches get the certificates they get alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from deformrs.dataset import Asked, Group, certify_dataset, groups_of, together_for
from deformrs.errors import InputError, ModelError
from deformrs.execution import Compiled
from deformrs.models import SmallCNN
from deformrs.runs import CERTIFICATES, load_run, read_config, read_times
from deformrs.sampling import Sampler
from deformrs.stopping import Stopping
from smoothed import smoothed

GENERATOR = torch.Generator().manual_seed(6)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(7)]
SIZES = [*IMAGES[:3], (torch.rand(1, 12, 14, generator=GENERATOR), 0), *IMAGES[4:]]


@pytest.mark.parametrize("together", [2, 3, 7, 50])
@pytest.mark.parametrize("batch_size", [1, 64, 1000])
@pytest.mark.parametrize("images", [IMAGES, SIZES], ids=["one size", "two sizes"])
def test_results_are_those_of_each_image_alone(
    together: int, batch_size: int, images: list[tuple[torch.Tensor, int]]
) -> None:
    alone = list(certify_dataset(smoothed(), images, n=300, n0=30))
    assert len({result.certificate.counts for result in alone}) == len(images)
    g = smoothed(batch_size=batch_size)
    assert list(certify_dataset(g, images, n=300, n0=30, together=together)) == alone


@pytest.mark.parametrize(("how", "last"), [("no", 1), ("default", 2)])
def test_a_image_that_is_left_over_is_alone_only_uncompiled(
    how: Compiled, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled program is for a single image, or for several: one run needs one."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    asked = Stopping(radii=("10deg",))
    alone = list(certify_dataset(smoothed(), IMAGES, n=300, n0=30, stopping=asked, together=1))
    sizes: list[int] = []

    class Watched(Sampler):
        def count(self, images: torch.Tensor, *arguments: object, **options: object) -> object:  # type: ignore[override]
            sizes.append(len(images))
            return super().count(images, *arguments, **options)  # type: ignore[arg-type]

    g = smoothed()
    g.sampler.__class__, g.sampler.compiled = Watched, how
    shared = list(certify_dataset(g, IMAGES, n=300, n0=30, stopping=asked, together=3))
    assert set(sizes) == {3, last}, "seven images: three, three, and one; a copy beside it"
    assert shared == alone


def test_a_run_that_broke_off_within_a_group_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "whole"))
    whole = (tmp_path / "whole" / CERTIFICATES).read_bytes()
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "part"))
    lines = whole.splitlines(keepends=True)
    for kept in range(1, 7):
        (tmp_path / "part" / CERTIFICATES).write_bytes(b"".join(lines[:kept]) + lines[kept][:9])
        again = list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "part"))
        assert [result.index for result in again] == list(range(7))
        assert (tmp_path / "part" / CERTIFICATES).read_bytes() == whole


def test_more_images_are_added_as_in_one_go(tmp_path: Path) -> None:
    for most in (2, 5, None):
        list(certify_dataset(smoothed(), IMAGES, n=100, together=3, max=most, out=tmp_path / "a"))
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, out=tmp_path / "b"))
    a, b = ((tmp_path / name / CERTIFICATES).read_bytes() for name in "ab")
    assert a == b
    assert len(read_times(tmp_path / "a")) == 7


def test_what_shares_batches_is_part_of_the_run(tmp_path: Path) -> None:
    list(certify_dataset(smoothed(), IMAGES, n=100, together=3, max=2, out=tmp_path))
    assert read_config(tmp_path)["together"] == 3
    with pytest.raises(InputError, match="together"):
        list(certify_dataset(smoothed(), IMAGES, n=100, together=4, out=tmp_path))


def test_another_function_is_noticed(tmp_path: Path) -> None:
    network = SmallCNN(num_classes=5, width=4).eval()
    list(certify_dataset(smoothed(network), IMAGES, n=100, together=3, max=4, out=tmp_path))

    def turned(module: object, inputs: object, scores: torch.Tensor) -> torch.Tensor:
        return scores.roll(1, dims=1)

    network.register_forward_hook(turned)
    with pytest.raises(ModelError, match="another than when the run was begun"):
        list(certify_dataset(smoothed(network), IMAGES, n=100, together=3, out=tmp_path))
    assert len(load_run(tmp_path)) == 4


def test_watch_hears_of_every_sample() -> None:
    heard: list[int] = []
    list(certify_dataset(smoothed(), IMAGES[:6], n=100, n0=10, together=3, watch=heard.append))
    assert sum(heard) == 6 * 110


def test_one_image_at_a_time_on_a_cpu() -> None:
    assert together_for(smoothed(), IMAGES[0][0], 10) == 1
    assert list(groups_of(range(0, 10, 2), 2)) == [(0, 2), (4, 6), (8,)]


def test_a_group_that_is_not_full_is_filled_up() -> None:
    images = tuple(image for image, _ in IMAGES[:2])
    group = Group((4, 5), images, (0, 1), ("", ""), 4)
    asked = Asked(100, 10, 0.001, 0, "clopper_pearson", None, None, None)
    ((filled, indices),) = group._parts(asked, smoothed())
    assert indices == [4, 5, 5, 5]
    assert [torch.equal(image, images[1]) for image in filled] == [False, True, True, True]


def test_images_that_cannot_share_batches_are_refused() -> None:
    with pytest.raises(InputError, match=r"must agree in shape and type"):
        smoothed().certify_all([SIZES[0][0], SIZES[3][0]], 10, indices=[0, 1])
    with pytest.raises(InputError, match="together"):
        certify_dataset(smoothed(), IMAGES, together=0)
