"""Certification on a Ray of several machines, which are processes here: one joins, one dies."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deformrs import RayEngine, Rotation, SmoothedClassifier, Uniform
from deformrs.bars import Progress
from deformrs.dataset import certify_dataset
from deformrs.models import SmallCNN
from deformrs.runs import CERTIFICATES

ray: Any = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "default::deformrs.errors.ScarcityWarning",
)

GENERATOR = torch.Generator().manual_seed(5)
IMAGES = [(torch.rand(1, 12, 12, generator=GENERATOR), k % 5) for k in range(44)]


class Slow(nn.Module):
    """A network that takes its time, so that machines can come and go meanwhile."""

    def __init__(self, seconds: float = 0.04) -> None:
        super().__init__()
        self.inner, self.seconds = SmallCNN(num_classes=5, width=4, seed=3), seconds

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(self.seconds)
        scores: Tensor = self.inner(images)
        return scores


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose first machine has one core."""
    from ray.cluster_utils import Cluster

    own = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield own
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of Ray's own log files
        ray.shutdown()
        own.shutdown()  # type: ignore[no-untyped-call]
        gc.collect()


def test_a_machine_that_joins_is_used_and_one_that_dies_costs_only_its_pieces(
    tmp_path: Path, cluster: Any
) -> None:
    machines: list[Any] = []
    words: list[str] = []
    seen: dict[str, int] = {}

    def change(said: str) -> None:
        """Add a machine after some pieces; once it samples, remove it."""
        words.append(said)
        workers = int(said.split()[0])
        if len(words) == 3:
            machines.append(cluster.add_node(num_cpus=1))
        if workers == 2:
            seen.setdefault("joined", len(words))
        if machines and "joined" in seen and len(words) == seen["joined"] + 6:
            seen["removed"] = len(words)
            cluster.remove_node(machines.pop())

    def certify(out: Path, model: Slow, engine: RayEngine | None, progress: Progress) -> bytes:
        classifier = SmoothedClassifier(model, Rotation(), Uniform(2.0), 5, batch_size=64)
        list(
            certify_dataset(
                classifier, IMAGES, n=400, seed=7, out=out, engine=engine, progress=progress
            )
        )
        return (out / CERTIFICATES).read_bytes()

    engine = RayEngine(address=cluster.address)
    two = certify(tmp_path / "two", Slow().eval(), engine, Progress(workers=change))
    assert words[0].startswith("1 worker, ")
    assert seen["removed"] < len(words)
    assert words[-1].startswith("1 worker, ")
    assert two == certify(tmp_path / "one", Slow(0.0).eval(), None, Progress())
