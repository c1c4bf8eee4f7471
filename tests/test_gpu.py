"""Certification on a GPU; skipped without one."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from deformrs import (
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    SmoothedClassifier,
    Uniform,
    certify_dataset,
)
from deformrs.cli.certify import certify_job
from deformrs.cli.jobs import prepare
from deformrs.cli.options import DataOptions, ModelOptions, SamplingOptions, SmoothingOptions
from deformrs.data.preparation import Preparation
from deformrs.errors import ScarcityWarning
from deformrs.execution import Compiled
from deformrs.geometry import read
from deformrs.models import SmallCNN, load_model, save_model
from deformrs.randomness import Stage
from deformrs.runs import CERTIFICATES, read_config
from deformrs.stopping import Stopping
from examples import DEFORMATIONS
from images import linear_map, ramp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("deformation", DEFORMATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_images_agree_with_the_cpu(deformation: Deformation, dtype: torch.dtype) -> None:
    image = torch.rand(3, 24, 40, generator=torch.Generator()).to(dtype)
    params = 0.1 * torch.randn(4, deformation.dim((24, 40)), generator=torch.Generator())
    on_gpu = deformation.apply(image.cuda(), params.cuda())
    assert on_gpu.dtype == dtype
    torch.testing.assert_close(
        on_gpu.cpu().float(), deformation.apply(image, params).float(), atol=1e-2, rtol=0
    )


def angle_below(images: Tensor) -> Tensor:
    assert images.is_cuda
    matrix, _ = linear_map(images)
    below = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0]) < 0.4
    return torch.stack([~below, below], dim=1).float()


def test_counts_do_not_depend_on_the_batch_size_and_agree_with_the_cpu() -> None:
    n = 50_000
    counts = {
        batch: SmoothedClassifier(
            angle_below, Rotation(), Uniform(0.5), 2, batch_size=batch, device="cuda"
        )
        .certify(ramp(), n=n)
        .counts
        for batch in (64, 1000, 4096)
    }
    assert len(set(counts.values())) == 1
    # p = 0.9 in closed form; five standard deviations.
    assert abs(counts[64].hits / n - 0.9) < 5 * math.sqrt(0.09 / n)


def test_the_device_is_the_models() -> None:
    model = SmallCNN(width=8).eval().cuda()
    image = torch.rand(1, 28, 28, generator=torch.Generator())
    g = SmoothedClassifier(model, Rotation(), Gaussian(0.5), 10, batch_size=4096)
    first = g.certify(image, n=20_000)
    assert g.certify(image.cuda(), n=20_000) == first
    assert first.counts.n == 20_000


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("compiled", ["no", "default"])
def test_counting_does_not_wait_for_the_device(compiled: Compiled) -> None:
    """The host synchronizes as often for two batches as for forty: only at the end."""
    model = SmallCNN(width=8).eval().cuda()
    image = torch.rand(1, 28, 28, generator=torch.Generator()).cuda()
    g = SmoothedClassifier(model, Rotation(), Uniform(0.5), 10, batch_size=1024, compiled=compiled)
    synchronizations = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.compile, which depend on the version
        g.count(image, 2048, Stage.ESTIMATE)
    for n in (2048, 40 * 1024):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            g.count(image, n, Stage.ESTIMATE)
            torch.cuda.set_sync_debug_mode("default")
        synchronizations.append(sum("synchroniz" in str(w.message) for w in caught))
    assert 0 < synchronizations[1] <= synchronizations[0] < 10


def test_memory_is_flat_in_n() -> None:
    model = SmallCNN(width=8).eval().cuda()
    image = torch.rand(1, 28, 28, generator=torch.Generator())
    g = SmoothedClassifier(model, Rotation(), Gaussian(0.5), 10, batch_size=1000)
    peaks = []
    for n in (2000, 2000, 100_000):
        torch.cuda.reset_peak_memory_stats()
        g.certify(image, n=n)
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[2] <= 1.05 * peaks[1]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path: Path, precision: str) -> None:
    save_model(tmp_path / "net", SmallCNN(width=8, seed=2).eval(), Preparation(channels=1))
    model = ModelOptions(str(tmp_path / "net"), precision=precision, device="cuda")  # type: ignore[arg-type]
    smoothing = SmoothingOptions("rotation", "uniform:60deg")
    console = Console(file=io.StringIO())
    for stops, name in (((6,), "whole"), ((2, 5, 6), "parts")):
        for stop in stops:
            job = prepare(model, DataOptions("digits"), smoothing, tmp_path / name)
            sampling = SamplingOptions(n=3000, n0=100, max=stop)
            totals = certify_job(job, sampling, tmp_path / name, console)
            assert totals is not None
            assert totals.images == stop
    whole, parts = ((tmp_path / name / CERTIFICATES).read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_an_exported_program_on_the_gpu(tmp_path: Path) -> None:
    net = SmallCNN(width=8, seed=2).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(net, (torch.zeros(2, 1, 28, 28),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "net.pt2")
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    loaded = load_model(str(tmp_path / "net.pt2"), device="cuda", trust_code=True)
    with torch.inference_mode():
        scores = loaded.module(images.cuda()).cpu()
        assert torch.allclose(scores, net(images), atol=0.02)


def test_images_that_share_batches_agree_with_each_alone(tmp_path: Path) -> None:
    network = SmallCNN(width=8).eval().cuda()
    g = SmoothedClassifier(network, Rotation(), Uniform(1.0), 10, batch_size=512)
    generator = torch.Generator().manual_seed(1)
    images = [(torch.rand(1, 28, 28, generator=generator), k) for k in range(10)]
    alone = list(certify_dataset(g, images, n=1000, together=1))
    shared = list(certify_dataset(g, images, n=1000, out=tmp_path))
    assert read_config(tmp_path)["together"] == 66
    for one, other in zip(alone, shared, strict=True):
        ours, expected = (r.certificate.counts.estimation for r in (one, other))
        # Rounding may break a near tie differently: one sample in a thousand at most.
        assert sum(abs(a - b) for a, b in zip(ours, expected, strict=True)) <= 2
    whole = (tmp_path / CERTIFICATES).read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in (3, 9):
        (tmp_path / CERTIFICATES).write_bytes(b"".join(lines[:kept]))
        list(certify_dataset(g, images, n=1000, out=tmp_path))
        assert (tmp_path / CERTIFICATES).read_bytes() == whole


@pytest.mark.filterwarnings("default")
def test_decided_images_share_batches(tmp_path: Path) -> None:
    network = SmallCNN(width=8).eval().cuda()
    generator = torch.Generator().manual_seed(1)
    images = [(torch.rand(1, 28, 28, generator=generator), k) for k in range(10)]
    g = SmoothedClassifier(network, Rotation(), Uniform(1.0), 10, batch_size=512)
    stopping = Stopping(radii=("10deg",))
    alone = list(certify_dataset(g, images, n=5000, stopping=stopping, together=1))
    shared = list(certify_dataset(g, images, n=5000, stopping=stopping, out=tmp_path))
    assert read_config(tmp_path)["together"] == 2048
    for one, other in zip(alone, shared, strict=True):
        a, b = one.certificate.counts, other.certificate.counts
        assert a.selection == b.selection
        if a.n == b.n:  # rounding may break a near tie differently, and so change where to stop
            assert sum(abs(x - y) for x, y in zip(a.estimation, b.estimation, strict=True)) <= 4
    pairs = zip(alone, shared, strict=True)
    assert sum(a.certificate.counts.n == b.certificate.counts.n for a, b in pairs) >= 8


def test_a_batch_that_does_not_fit_is_halved() -> None:
    class Wide(torch.nn.Module):
        """Allocates 8 GiB per image of a batch."""

        def forward(self, images: Tensor) -> Tensor:
            memory = torch.empty(len(images), 2**33, dtype=torch.uint8, device=images.device)
            del memory
            return images.mean(dim=(1, 2, 3), keepdim=False)[:, None] * torch.tensor(
                [1.0, -1.0], device=images.device
            )

    image = torch.rand(1, 8, 8, generator=torch.Generator())
    g = SmoothedClassifier(Wide().eval(), Rotation(), Uniform(1.0), 2, batch_size=64, device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert g.certify(image, n=300, n0=50).counts.estimation == (300, 0)
    notes = [str(w.message) for w in caught if issubclass(w.category, ScarcityWarning)]
    assert notes
    assert "batches of" in notes[-1]


@pytest.mark.filterwarnings("ignore")  # of torch.compile, which depend on the version
@pytest.mark.parametrize("deformation", DEFORMATIONS)
def test_compiled_counts_agree(deformation: Deformation) -> None:
    network = SmallCNN(width=8, channels=3).eval().cuda()
    image = torch.rand(3, 24, 24, generator=torch.Generator())
    noise = Gaussian(0.05)
    if len(deformation.space((24, 24)).blocks) > 1:
        noise = Independent(*[noise] * len(deformation.space((24, 24)).blocks))  # type: ignore[assignment]
    plain, quick = (
        SmoothedClassifier(network, deformation, noise, 10, batch_size=512, compiled=how)
        for how in ("no", "default")
    )
    counts = [g.count(image, 3000, Stage.ESTIMATE) for g in (plain, quick)]
    assert quick.sampler.compiled == "default"
    differing = sum(abs(a - b) for a, b in zip(*counts, strict=True)) / 2
    assert differing <= 6  # near ties that rounding breaks differently


@pytest.mark.filterwarnings("ignore")
def test_compilation_leaves_the_interpolation_as_it_is() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 3, 24, 24, generator=generator).cuda()
    points = 2.4 * torch.rand(3, 40, 30, 2, generator=generator).cuda() - 1.2
    quick = torch.compile(read, dynamic=False)
    assert torch.equal(quick(images, points, "zeros"), read(images, points, "zeros"))
