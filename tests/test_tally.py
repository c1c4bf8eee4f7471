"""Images that are interrupted while they are sampled: what is stored, continued, or not used."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deformrs import SmoothedClassifier
from deformrs.dataset import certify_dataset
from deformrs.errors import ModelError, ScarcityWarning
from deformrs.models import SmallCNN
from deformrs.runs import (
    CERTIFICATES,
    TIMES,
    load_run,
    pack_run,
    read_times,
    tally,
    unpack_run,
)
from deformrs.runs.tally import PARTIAL, Tally
from deformrs.sampling import Progress
from deformrs.stopping import Stopping
from examples import LimitedMemory, network, smoothed

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(3)]
STOPPING = Stopping(tolerance=0.001)  # needs all samples
NEVER = 1e9


class Watched(nn.Module):
    """A network that counts its calls, and of which the last one raises."""

    def __init__(self, last: int = 10**9, error: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__()
        self.inner = network()
        self.calls, self.last, self.error = 0, last, error

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.last:
            raise self.error
        scores: Tensor = self.inner(images)
        return scores


def certify(out: Path, model: nn.Module | SmoothedClassifier, **options: Any) -> list[int]:
    """Certify three images into a folder; return how many samples were continued, and when."""
    resumed: list[int] = []
    g = (
        model
        if isinstance(model, SmoothedClassifier)
        else smoothed(model.eval(), check_model=False)
    )
    settings: dict[str, Any] = {"images": IMAGES, "n": 1000, "n0": 100}
    settings |= {"progress": Progress(resumed=resumed.append)} | options
    list(certify_dataset(g, out=out, **settings))
    return resumed


def interrupt(out: Path, last: int, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        certify(out, Watched(last), **options)


def lines(folder: Path) -> bytes:
    return (folder / CERTIFICATES).read_bytes()


@pytest.fixture(autouse=True)
def _only_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "SECONDS_BETWEEN_WRITES", NEVER)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the results without interruption."""
    out = tmp_path_factory.mktemp("whole")
    certify(out, Watched())
    return lines(out)


STOPPED, FAILED = KeyboardInterrupt, RuntimeError
"""What the user interrupts is stored at that moment; where a process fails or is killed, before."""


@pytest.mark.parametrize(
    ("end", "least", "options"),
    [
        pytest.param(STOPPED, 9, {}, id="one by one"),
        pytest.param(FAILED, 9, {}, id="one by one, failed"),
        pytest.param(FAILED, 20, {"together": 2}, id="in twos"),
        pytest.param(STOPPED, 20, {"together": 5}, id="in one group"),
        pytest.param(STOPPED, 32, {"together": 2, "stopping": STOPPING}, id="in twos, decided"),
        pytest.param(FAILED, 34, {"together": 5, "stopping": STOPPING}, id="in a group, decided"),
    ],
)
def test_images_interrupted_anywhere_are_continued_to_the_same_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: type[BaseException],
    least: int,
    options: dict[str, Any],
) -> None:
    """Each process makes `least` calls of the model or half as many again."""
    certify(tmp_path / "whole", Watched(), **options)
    monkeypatch.setattr(tally, "SECONDS_BETWEEN_WRITES", NEVER if end is STOPPED else 0)
    folder, resumed = tmp_path / "part", list[int]()
    options = options | {"progress": Progress(resumed=resumed.append)}
    for last in np.random.default_rng(3).integers(least, 3 * least // 2, 30).tolist():
        try:
            certify(folder, Watched(last, end), **options)
        except end:
            continue
        break
    assert len(resumed) > 1
    assert lines(folder) == lines(tmp_path / "whole")
    assert set(read_times(folder)) == {0, 1, 2}
    assert not list(folder.glob("partial*")), "a finished run has none"


def test_finished_batches_are_not_sampled_again(tmp_path: Path, whole: bytes) -> None:
    """Each image takes 18 batches and one for the plain prediction; the first batch is repeated."""
    for last, batches in ((8, 7), (8, 13), (5, 16)):
        interrupt(tmp_path, last)
        assert json.loads((tmp_path / PARTIAL).read_text())["step"] == batches
    model = Watched()
    assert certify(tmp_path, model) == [15 * 64]
    assert model.calls == 3 * 19 - 15
    assert lines(tmp_path) == whole


def test_an_interruption_during_the_first_batch_keeps_the_stored_ones(
    tmp_path: Path, whole: bytes
) -> None:
    interrupt(tmp_path, 8)
    before = (tmp_path / PARTIAL).read_bytes()
    interrupt(tmp_path, 1)
    assert (tmp_path / PARTIAL).read_bytes() == before
    certify(tmp_path, Watched())
    assert lines(tmp_path) == whole


def edited(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-30],
        lambda _: "",
        lambda _: "[]",
        lambda _: "{}",
        lambda _: '{"images": [], "check": ""}',
        edited('"step": 7', '"step": 6'),
        edited('"index": 0', '"index": 1'),
        edited('"counts": [{"', '"counts": [{"0": 1, "'),
    ],
)
def test_a_changed_file_is_not_used(
    tmp_path: Path, whole: bytes, change: Callable[[str], str]
) -> None:
    interrupt(tmp_path, 8)
    path = tmp_path / PARTIAL
    path.write_text(change(path.read_text()))
    with pytest.warns(ScarcityWarning, match=r"partial\.json are damaged or of other settings"):
        assert certify(tmp_path, Watched()) == []
    assert lines(tmp_path) == whole


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "seed": ("settings", {"seed": 1}),
    "n": ("settings", {"n": 999}),
    "n0": ("settings", {"n0": 99}),
    "group": ("settings", {"together": 2}),
    "label": ("another label", {"images": [(IMAGES[0][0], 4), *IMAGES[1:]]}),
    "pixels": ("other pixels", {"images": [(IMAGES[0][0].flip(2), 0), *IMAGES[1:]]}),
    "weights": ("settings", {"model": SmallCNN(num_classes=5, width=4, seed=4)}),
    "batch size": (
        "settings",
        {"model": smoothed(Watched().eval(), batch_size=50, check_model=False)},
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_guarantee_counts_of_another_run_are_not_used(tmp_path: Path, other: str) -> None:
    """A `Tally` uses them neither in their folder nor after they were moved to another one."""
    reason, options = OTHERS[other]
    options = {"model": Watched()} | options
    interrupt(tmp_path / "a", 8)
    stored = (tmp_path / "a" / PARTIAL).read_bytes()
    certify(tmp_path / "b", **options)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / PARTIAL).write_bytes(stored)
    for folder in (tmp_path / "a", tmp_path / "c"):
        with pytest.warns(ScarcityWarning, match=reason):
            assert certify(folder, **options) == []
        assert lines(folder) == lines(tmp_path / "b")


def test_counts_of_another_image_are_kept_until_it_is_sampled(tmp_path: Path, whole: bytes) -> None:
    """As when the results of earlier images are removed."""
    interrupt(tmp_path, 19 + 8)
    path = tmp_path / CERTIFICATES
    path.write_bytes(b"")
    (tmp_path / TIMES).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interrupt(tmp_path, 1)
        path.write_bytes(whole[: whole.index(b"\n") + 1])
        assert certify(tmp_path, Watched()) == [6 * 64]
    assert lines(tmp_path) == whole


@pytest.mark.parametrize(
    ("last", "options"),
    [(9, {}), (120, {"n": 5000, "stopping": Stopping(tolerance="0.1deg")})],
    ids=["all samples", "decided"],
)
def test_counts_of_another_function_are_not_used(
    tmp_path: Path, last: int, options: dict[str, Any]
) -> None:
    """A function has no weights to digest; its first batch tells, even if all is of one class."""
    calls = shift = 0
    inner, bias = network(), torch.tensor([9, 0, 0, 0, 0])

    def model(images: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        scores: Tensor = inner(images)
        return scores * (1 + shift) + bias

    g = smoothed(model, check_model=False)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "a", g, **options)
    assert (tmp_path / "a" / PARTIAL).exists()
    shift, calls = 1, 10**6
    certify(tmp_path / "b", g, **options)
    with pytest.warns(ScarcityWarning, match="of a model with other logits"):
        assert certify(tmp_path / "a", g, **options) == []
    assert lines(tmp_path / "a") == lines(tmp_path / "b")


@pytest.mark.parametrize("options", [{}, {"stopping": Stopping(tolerance="0.1deg")}])
def test_counts_under_another_deformation_are_not_used(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A model that answers as before for plain images only, as if a deformation had changed."""
    calls, last, strength = 0, 70, 1.0
    inner = network()

    def model(images: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        dark_corner = images[:, :, 0, 0].sum(dim=1) == 0  # what a rotation leaves
        scores: Tensor = inner(images)
        return torch.where(dark_corner[:, None], strength * scores, scores)

    g = smoothed(model, check_model=False)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, g, n=5000, **options)
    last, strength = 0, 1.1
    with pytest.warns(ScarcityWarning, match="of a model with other logits"):
        assert certify(tmp_path, g, n=5000, **options) == []


def test_no_count_of_an_undefined_logit_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes
) -> None:
    monkeypatch.setattr(tally, "SECONDS_BETWEEN_WRITES", 0)

    class Undefined(Watched):
        __qualname__ = "Watched"

        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * (torch.nan if self.calls == 5 else 1)

    with pytest.raises(ModelError, match="NaN or infinite"):
        certify(tmp_path, Undefined())
    assert json.loads((tmp_path / PARTIAL).read_text())["step"] == 4
    assert certify(tmp_path, Watched()) == [3 * 64]
    assert lines(tmp_path) == whole


class Scarce(LimitedMemory):
    """A network that takes at most `most` images at once, and is interrupted at one call."""

    def __init__(self, most: int, last: int = 10**9) -> None:
        super().__init__(most)
        self.calls, self.last = 0, last

    def forward(self, images: Tensor) -> Tensor:
        scores = super().forward(images)
        self.calls += 1
        if self.calls == self.last:
            raise KeyboardInterrupt
        return scores


def test_counts_are_stored_in_the_batches_that_fit_into_memory(tmp_path: Path) -> None:
    """The first batch of 64 is halved, and sampled again as one of 32."""
    with pytest.warns(ScarcityWarning, match="batches of 32"):
        certify(tmp_path / "whole", Scarce(50))
    folder = tmp_path / "part"
    for last in (12, 12):
        with pytest.warns(ScarcityWarning, match="batches of 32"), pytest.raises(KeyboardInterrupt):
            certify(folder, Scarce(50, last))
    record = json.loads((folder / PARTIAL).read_text())
    assert record["batch_size"] == 32
    assert record["step"] > 12, "the second process went on where the first was interrupted"
    with pytest.warns(ScarcityWarning, match="batches of 32"):
        certify(folder, Scarce(50))
    assert lines(folder) == lines(tmp_path / "whole")


def test_counts_of_smaller_batches_are_not_mixed_with_larger_ones(tmp_path: Path) -> None:
    with pytest.warns(ScarcityWarning, match="batches of 32"), pytest.raises(KeyboardInterrupt):
        certify(tmp_path, Scarce(50, 12))
    with pytest.warns(ScarcityWarning, match="made in batches of 32, not 64"):
        assert certify(tmp_path, Scarce(64)) == []


def test_a_full_disk_hides_no_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(tally, "write_atomically", full)
    with pytest.warns(ScarcityWarning, match="cannot be stored.*No space left"):
        interrupt(tmp_path, 9)
    monkeypatch.setattr(tally, "SECONDS_BETWEEN_WRITES", 0)
    with pytest.warns(ScarcityWarning, match="cannot be stored.*No space left"):
        certify(tmp_path, Watched())


def test_an_undefined_logit_hides_no_interruption(tmp_path: Path) -> None:
    class Undefined(Watched):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * torch.nan

    with pytest.warns(ScarcityWarning, match="NaN"), pytest.raises(KeyboardInterrupt):
        certify(tmp_path, Undefined(4))
    assert not (tmp_path / PARTIAL).exists()


def test_short_images_are_not_stored(tmp_path: Path) -> None:
    def unread() -> NDArray[np.int64]:
        raise AssertionError("reading counts makes a device wait")

    with Tally(tmp_path, {}, []) as kept:
        for step in range(1, 4):
            assert kept.add(step, unread, 64) is None
    assert not list(tmp_path.iterdir())


def test_a_compiled_model_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose batches are all filled up to one size. Compiling itself would take long."""
    monkeypatch.setattr(torch, "compile", lambda program, **_: program)

    def compiled(last: int) -> SmoothedClassifier:
        g = smoothed(Watched(last).eval(), check_model=False)
        g.sampler.compiled = "default"
        return g

    certify(tmp_path / "whole", compiled(10**9))
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "part", compiled(12))
    assert sum(certify(tmp_path / "part", compiled(10**9))) > 0
    assert lines(tmp_path / "part") == lines(tmp_path / "whole")


def test_images_of_two_sizes_are_sampled_again(tmp_path: Path) -> None:
    images = [*IMAGES, (torch.rand(1, 12, 14, generator=GENERATOR), 0)]
    certify(tmp_path / "whole", Watched(), images=images, together=4)
    interrupt(tmp_path / "part", 30, images=images, together=4)
    assert not (tmp_path / "part" / PARTIAL).exists()
    certify(tmp_path / "part", Watched(), images=images, together=4)
    assert lines(tmp_path / "part") == lines(tmp_path / "whole")


def test_a_run_with_stored_counts_is_read_and_packed(tmp_path: Path, whole: bytes) -> None:
    interrupt(tmp_path, 19 + 8)
    assert [result.index for result in load_run(tmp_path)] == [0]
    pack_run(tmp_path)
    unpack_run(tmp_path)
    assert certify(tmp_path, Watched()) == [6 * 64]
    assert lines(tmp_path) == whole
