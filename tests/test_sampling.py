"""Sampling: spans that share batches, kept draws, and batches that do not fit in memory."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deformrs import (
    Compose,
    Gaussian,
    Independent,
    Rotation,
    SmoothedClassifier,
    Translation,
    Uniform,
)
from deformrs.certificate import Counts
from deformrs.dataset import certify_dataset
from deformrs.errors import NoMemoryError, ScarcityWarning
from deformrs.models import SmallCNN
from deformrs.noise import NoiseLaw
from deformrs.noise.law import Generator
from deformrs.randomness import BLOCK, Draws, Philox, Span, Stage, in_batches
from deformrs.runs import Result
from deformrs.sampling import Progress
from deformrs.space import Space
from deformrs.stopping import Stopping
from examples import IMAGES, LimitedMemory, sampler, smoothed

CPU = torch.device("cpu")
SPACE = Rotation().space((12, 12))


def draws(spans: list[Span], size: int) -> list[Tensor]:
    drawn = Draws(Uniform(1.0), SPACE, CPU, seed=1)
    return [drawn.of(batch) for batch in in_batches(spans, size)]


class TestKeptDraws:
    @pytest.mark.parametrize("room", [0, BLOCK, 2 * BLOCK, 10**6])
    def test_what_is_kept_changes_no_draw(self, room: int) -> None:
        kept = Draws(Uniform(1.0), SPACE, CPU, seed=1, room=room)
        found: dict[int, list[Tensor]] = {0: [], 1: [], 2: []}
        for start, stop in ((0, 16), (16, 30), (30, 256), (256, 300), (300, 700)):
            for index, rows in found.items():
                span = Span(index, Stage.ESTIMATE, start, stop)
                rows += [kept.of(batch) for batch in in_batches([span], 50)]
        for index, rows in found.items():
            whole = draws([Span(index, Stage.ESTIMATE, 0, 700)], 10**6)[0]
            assert torch.equal(torch.cat(rows), whole)

    def test_a_block_is_drawn_once_for_all_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[int] = []
        raw = Uniform.raw

        def counted(law: Uniform, n: int, space: Space, generator: Generator) -> Tensor:
            drawn.append(n)
            return raw(law, n, space, generator)

        monkeypatch.setattr(Uniform, "raw", counted)
        g = sampler()
        kept = g.draws(IMAGES, 0, room=10**6)
        for start, stop in ((0, 16), (16, 19), (19, 200), (200, 300), (300, 400)):
            spans = [Span(i, Stage.ESTIMATE, start, stop, image=i) for i in range(3)]
            g.count(IMAGES, spans, 1, seed=0, draws=kept)
        assert drawn == [BLOCK] * 6

    def test_no_draw_is_kept_after_an_image(self) -> None:
        g = smoothed()
        sizes = set()
        for index in range(3):
            g.certify(IMAGES[0], n=300, index=index)
            g.certify(IMAGES[0], n=300, index=index, stopping=Stopping(radii=("10deg",)))
            sizes.add(len(pickle.dumps(g)))
        assert len(sizes) == 1

    def test_threads_draw_the_noise_of_one(self) -> None:
        g = smoothed()
        requests = [(IMAGES[i % 3], i) for i in range(24)]

        def counts(one: tuple[Tensor, int]) -> Counts:
            return g.certify(one[0], n=700, index=one[1]).counts

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(counts, requests)) == [counts(one) for one in requests]


class TestSpans:
    def test_a_span_is_the_same_part_of_the_noise_whatever_came_before(self) -> None:
        whole = torch.cat(draws([Span(7, Stage.ESTIMATE, 0, 1000)], 64))
        for start, stop in ((0, 1), (10, 30), (250, 260), (256, 512), (300, 999)):
            before = Span(3, Stage.SELECT, 5, 77)
            rows = torch.cat(draws([before, Span(7, Stage.ESTIMATE, start, stop)], 50))[72:]
            assert torch.equal(rows, whole[start:stop])

    @given(
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 300)), min_size=1, max_size=5),
        st.integers(1, 300),
        st.integers(1, 300),
    )
    @settings(max_examples=60, deadline=None)
    def test_batches_are_cut_without_loss(
        self, parts: list[tuple[int, int]], size: int, smaller: int
    ) -> None:
        spans = [
            Span(k, Stage.ESTIMATE, start, start + length, k, 10 + k)
            for k, (start, length) in enumerate(parts)
        ]
        batches = list(in_batches(spans, size))
        samples = [(s.index, s.image, s.row, i) for s in spans for i in range(s.start, s.stop)]
        drawn = Draws(Uniform(1.0), SPACE, CPU, seed=1)
        cut = [part for batch in batches for part in in_batches(batch, smaller)]
        for whole, most in ((batches, size), (cut, smaller)):
            assert all(0 < sum(map(len, batch)) <= most for batch in whole)
            pieces = [piece for batch in whole for piece in batch]
            assert samples == [
                (p.index, p.image, p.row, i) for p in pieces for i in range(p.start, p.stop)
            ]
            if samples:
                found = torch.cat([drawn.of(batch) for batch in whole])
                assert torch.equal(found, torch.cat(draws(spans, 10**6)))
        assert all(sum(map(len, batch)) == size for batch in batches[:-1])

    def test_pieces_go_to_their_rows(self) -> None:
        spans = [
            Span(4, Stage.SELECT, 0, 30, image=2, row=0),
            Span(4, Stage.ESTIMATE, 0, 100, image=2, row=3),
            Span(9, Stage.ESTIMATE, 40, 400, image=0, row=1),
            Span(4, Stage.ESTIMATE, 100, 150, image=2, row=3),
        ]
        counts = sampler(batch_size=37).count(IMAGES, spans, 4, seed=2)
        assert counts.sum(axis=1).tolist() == [30, 360, 0, 150]
        g = SmoothedClassifier(sampler()._model, Rotation(), Uniform(2.0), 5)
        assert tuple(counts[3]) == g.count(IMAGES[2], 150, Stage.ESTIMATE, seed=2, index=4)
        early, late = (g.count(IMAGES[0], k, Stage.ESTIMATE, seed=2, index=9) for k in (40, 400))
        assert counts[1].tolist() == [b - a for a, b in zip(early, late, strict=True)]

    @pytest.mark.parametrize(
        "law", [Uniform((0.5, 0.1, 0.1)), Independent(Uniform(0.2), Gaussian((0.3, 0.1)))]
    )
    def test_raw_draws_become_params_row_by_row(self, law: NoiseLaw) -> None:
        space = Compose(Rotation(), Translation()).space((12, 12))
        whole = law.sample(BLOCK, space, Philox(5))
        raw = law.raw(BLOCK, space, Philox(5))
        parts = [law.params(part, space) for part in (raw[:100], raw[100:])]
        assert torch.equal(torch.cat(parts), whole)
        assert whole.dtype == torch.float32


class TestMemory:
    @pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
    def test_a_batch_that_does_not_fit_is_halved_and_no_sample_lost(
        self, error: type[Exception]
    ) -> None:
        spans = [Span(k, Stage.ESTIMATE, 0, 333, k, k) for k in range(3)]
        expected = sampler().count(IMAGES, spans, 3, seed=0)
        tight = LimitedMemory(30, error).eval()
        g = sampler(tight, batch_size=200)
        sampled: list[int] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.array_equal(
                g.count(IMAGES, spans, 3, seed=0, progress=Progress(sampled=sampled.append)),
                expected,
            )
        assert [str(warning.message)[-3:] for warning in caught] == ["100", " 50", " 25"]
        assert all(warning.category is ScarcityWarning for warning in caught)
        assert sum(sampled) == 999
        assert max(tight.sizes[3:]) == 25
        assert g.batch_size == 200, "the requested batch size stays"

    def test_draws_that_do_not_fit_are_halved_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Noise on every pixel takes more room than the images."""
        spans = [Span(k, Stage.ESTIMATE, 0, 333, k, k) for k in range(3)]
        expected = sampler().count(IMAGES, spans, 3, seed=0)
        plenty, sizes = Draws.of, list[int]()

        def scarce(draws: Draws, batch: Sequence[Span]) -> Tensor:
            sizes.append(sum(map(len, batch)))
            if sizes[-1] > 100:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            return plenty(draws, batch)

        monkeypatch.setattr(Draws, "of", scarce)
        g = sampler(batch_size=200)
        with pytest.warns(ScarcityWarning, match="continuing with batches of 100"):
            assert np.array_equal(g.count(IMAGES, spans, 3, seed=0), expected)
        assert sizes[:2] == [200, 100]

    def test_batches_of_plain_predictions_are_halved_too(self) -> None:
        images = IMAGES.repeat(30, 1, 1, 1)
        expected = sampler(batch_size=5).classify(images)
        g = sampler(LimitedMemory(50).eval(), batch_size=200)
        with pytest.warns(ScarcityWarning, match="continuing with batches of 45"):
            assert g.classify(images) == expected

    def test_many_images_are_certified_in_little_memory(self) -> None:
        labelled = [(IMAGES[k % 3], 0) for k in range(20)]

        def certified(model: nn.Module, size: int) -> list[Result]:
            g = SmoothedClassifier(model.eval(), Rotation(), Uniform(2.0), 5, batch_size=size)
            stopping = Stopping(radii=("10deg",))
            return list(certify_dataset(g, labelled, n=100, n0=20, stopping=stopping))

        with pytest.warns(ScarcityWarning, match="continuing with batches of 8"):
            found = certified(LimitedMemory(8), 16)
        assert found == certified(SmallCNN(num_classes=5, width=4, seed=3), 8)

    def test_one_image_too_large_is_an_error(self) -> None:
        g = sampler(LimitedMemory(0).eval(), batch_size=4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScarcityWarning)
            with pytest.raises(NoMemoryError, match="too small for 1 images of 1 x 12 x 12"):
                g.count(IMAGES, [Span(0, Stage.SELECT, 0, 9)], 1, seed=0)
