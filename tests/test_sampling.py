"""From pictures to counts: spans share batches, memory runs short, compilation comes and fails."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deformrs import (
    Compose,
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    SmoothedClassifier,
    Translation,
    Uniform,
)
from deformrs.certificate import Counts
from deformrs.compiling import Compiled, compiled
from deformrs.engines import certify_dataset
from deformrs.errors import InputError, ModelError, NoMemoryError, ScarcityWarning
from deformrs.models import SmallCNN
from deformrs.noise import NoiseLaw
from deformrs.randomness import BLOCK, Draws, Span, Stage, in_batches
from deformrs.runs import Result
from deformrs.sampling import Sampler
from deformrs.space import Space
from deformrs.stopping import Stopping
from every_family import EXAMPLES
from smoothed import IMAGE, Model

CPU = torch.device("cpu")
SPACE = Rotation().space((12, 12))
PICTURES = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(4))


def sampler(model: Model | None = None, batch_size: int = 64, how: Compiled = "no") -> Sampler:
    model = SmallCNN(num_classes=5, width=4, seed=3).eval() if model is None else model
    return Sampler(
        model, Rotation(), Uniform(2.0), 5, padding="zeros", batch_size=batch_size, how=how
    )


def five_classes() -> SmoothedClassifier:
    model = SmallCNN(num_classes=5, width=4, seed=3).eval()
    return SmoothedClassifier(model, Rotation(), Uniform(2.0), 5, batch_size=64)


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

    def test_a_block_is_drawn_once_however_often_one_looks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn: list[int] = []
        raw = Uniform.raw

        def counted(law: Uniform, n: int, space: Space, generator: torch.Generator) -> Tensor:
            drawn.append(n)
            return raw(law, n, space, generator)

        monkeypatch.setattr(Uniform, "raw", counted)
        g = sampler()
        kept = g.draws(PICTURES, 0, room=10**6)
        for start, stop in ((0, 16), (16, 19), (19, 200), (200, 300), (300, 400)):
            spans = [Span(i, Stage.ESTIMATE, start, stop, picture=i) for i in range(3)]
            g.count(PICTURES, spans, 1, seed=0, draws=kept)
        assert drawn == [BLOCK] * 6

    def test_nothing_is_kept_when_a_picture_is_done(self) -> None:
        g = five_classes()
        sizes = set()
        for index in range(3):
            g.certify(PICTURES[0], n=300, index=index)
            g.certify(PICTURES[0], n=300, index=index, stopping=Stopping(radii=("10deg",)))
            sizes.add(len(pickle.dumps(g)))
        assert len(sizes) == 1

    def test_threads_draw_the_noise_of_one(self) -> None:
        g = five_classes()
        asked = [(PICTURES[i % 3], i) for i in range(24)]

        def counts(one: tuple[Tensor, int]) -> Counts:
            return g.certify(one[0], n=700, index=one[1]).counts

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(counts, asked)) == [counts(one) for one in asked]


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
        samples = [(s.index, s.picture, s.row, i) for s in spans for i in range(s.start, s.stop)]
        drawn = Draws(Uniform(1.0), SPACE, CPU, seed=1)
        cut = [part for batch in batches for part in in_batches(batch, smaller)]
        for whole, most in ((batches, size), (cut, smaller)):
            assert all(0 < sum(map(len, batch)) <= most for batch in whole)
            pieces = [piece for batch in whole for piece in batch]
            assert samples == [
                (p.index, p.picture, p.row, i) for p in pieces for i in range(p.start, p.stop)
            ]
            if samples:
                found = torch.cat([drawn.of(batch) for batch in whole])
                assert torch.equal(found, torch.cat(draws(spans, 10**6)))
        assert all(sum(map(len, batch)) == size for batch in batches[:-1])

    def test_pieces_go_to_their_rows(self) -> None:
        spans = [
            Span(4, Stage.SELECT, 0, 30, picture=2, row=0),
            Span(4, Stage.ESTIMATE, 0, 100, picture=2, row=3),
            Span(9, Stage.ESTIMATE, 40, 400, picture=0, row=1),
            Span(4, Stage.ESTIMATE, 100, 150, picture=2, row=3),
        ]
        counts = sampler(batch_size=37).count(PICTURES, spans, 4, seed=2)
        assert counts.sum(axis=1).tolist() == [30, 360, 0, 150]
        g = SmoothedClassifier(sampler().model, Rotation(), Uniform(2.0), 5)
        assert tuple(counts[3]) == g.count(PICTURES[2], 150, Stage.ESTIMATE, seed=2, index=4)
        early, late = (g.count(PICTURES[0], k, Stage.ESTIMATE, seed=2, index=9) for k in (40, 400))
        assert counts[1].tolist() == [b - a for a, b in zip(early, late, strict=True)]

    @pytest.mark.parametrize(
        "law", [Uniform((0.5, 0.1, 0.1)), Independent(Uniform(0.2), Gaussian((0.3, 0.1)))]
    )
    def test_raw_draws_become_params_row_by_row(self, law: NoiseLaw) -> None:
        space = Compose(Rotation(), Translation()).space((12, 12))
        whole = law.sample(BLOCK, space, torch.Generator().manual_seed(5))
        raw = law.raw(BLOCK, space, torch.Generator().manual_seed(5))
        parts = [law.params(part, space) for part in (raw[:100], raw[100:])]
        assert torch.equal(torch.cat(parts), whole)
        assert whole.dtype == torch.float32


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are traced and kept as ever, but no code is made of them."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


class Greedy(nn.Module):
    """Takes no more than so many pictures at once."""

    def __init__(self, most: int, error: type[Exception] = torch.OutOfMemoryError) -> None:
        super().__init__()
        self.inner = SmallCNN(num_classes=5, width=4, seed=3)
        self.most, self.error = most, error
        self.sizes: list[int] = []

    def forward(self, pictures: Tensor) -> Tensor:
        self.sizes.append(len(pictures))
        if len(pictures) > self.most:
            raise self.error("allocate memory")
        scores: Tensor = self.inner(pictures)
        return scores


class TestMemory:
    @pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
    def test_a_batch_that_does_not_fit_is_halved_and_no_sample_lost(
        self, error: type[Exception]
    ) -> None:
        spans = [Span(k, Stage.ESTIMATE, 0, 333, k, k) for k in range(3)]
        expected = sampler().count(PICTURES, spans, 3, seed=0)
        tight = Greedy(30, error).eval()
        g = sampler(tight, batch_size=200)
        told: list[int] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.array_equal(g.count(PICTURES, spans, 3, seed=0, watch=told.append), expected)
        assert [str(warning.message)[-3:] for warning in caught] == ["100", " 50", " 25"]
        assert all(warning.category is ScarcityWarning for warning in caught)
        assert sum(told) == 999
        assert max(tight.sizes[3:]) == 25
        assert g.batch_size == 200, "what the run was asked for"

    def test_draws_that_do_not_fit_are_halved_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Noise on every pixel takes more room than the pictures."""
        spans = [Span(k, Stage.ESTIMATE, 0, 333, k, k) for k in range(3)]
        expected = sampler().count(PICTURES, spans, 3, seed=0)
        plenty, sizes = Draws.of, list[int]()

        def scarce(draws: Draws, batch: Sequence[Span]) -> Tensor:
            sizes.append(sum(map(len, batch)))
            if sizes[-1] > 100:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            return plenty(draws, batch)

        monkeypatch.setattr(Draws, "of", scarce)
        g = sampler(batch_size=200)
        with pytest.warns(ScarcityWarning, match="goes on with batches of 100"):
            assert np.array_equal(g.count(PICTURES, spans, 3, seed=0), expected)
        assert sizes[:2] == [200, 100]

    def test_plain_answers_are_halved_too(self) -> None:
        pictures = PICTURES.repeat(30, 1, 1, 1)
        expected = sampler(batch_size=5).plain(pictures)
        g = sampler(Greedy(50).eval(), batch_size=200)
        with pytest.warns(ScarcityWarning, match="goes on with batches of 45"):
            assert g.plain(pictures) == expected

    def test_many_pictures_are_certified_in_little_memory(self) -> None:
        labelled = [(PICTURES[k % 3], 0) for k in range(20)]

        def certified(model: nn.Module, size: int) -> list[Result]:
            g = SmoothedClassifier(model.eval(), Rotation(), Uniform(2.0), 5, batch_size=size)
            asked = Stopping(radii=("10deg",))
            return list(certify_dataset(g, labelled, n=100, n0=20, stopping=asked))

        with pytest.warns(ScarcityWarning, match="goes on with batches of 8"):
            found = certified(Greedy(8), 16)
        assert found == certified(SmallCNN(num_classes=5, width=4, seed=3), 8)

    def test_one_picture_too_large_is_an_error(self) -> None:
        g = sampler(Greedy(0).eval(), batch_size=4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScarcityWarning)
            with pytest.raises(NoMemoryError, match="too small for 1 pictures of 1 x 12 x 12"):
                g.count(PICTURES, [Span(0, Stage.SELECT, 0, 9)], 1, seed=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it first compiles
class TestCompiled:
    def test_the_same_counts_for_every_batch_size_and_path(self) -> None:
        spans = [Span(k, Stage.ESTIMATE, 10 * k, 200 + k, k, k) for k in range(3)]
        expected = sampler().count(PICTURES, spans, 3, seed=0)
        g = sampler(batch_size=50, how="default")
        told: list[int] = []
        found = g.count(PICTURES, spans, 3, seed=0, watch=told.append)
        assert g.compiled == "default"
        assert np.array_equal(found, expected)
        assert sum(told) == expected.sum()

    def test_it_is_compiled_once_and_always_for_one_shape(self, quickly: None) -> None:
        def few(pictures: Tensor) -> Tensor:
            return pictures.flatten(1)[:, :5]

        g = SmoothedClassifier(few, Rotation(), Uniform(2.0), 5, batch_size=32, compiled="default")
        g.warm_up(IMAGE)
        with torch.compiler.set_stance("fail_on_recompile"):
            for n in (10, 32, 50):
                assert g.certify(IMAGE, n=n, n0=5).counts.n == n
        with pytest.raises(InputError, match=r"must have the shape compiled for, \(1, 12, 12\)"):
            g.certify(torch.rand(1, 14, 14, generator=torch.Generator()), n=10)

    @pytest.mark.parametrize("deformation", EXAMPLES)
    @pytest.mark.parametrize("law", [Gaussian(0.1), Uniform(0.1)], ids=repr)
    def test_noise_and_warp_are_one_program(
        self, deformation: Deformation, law: Gaussian | Uniform
    ) -> None:
        """Where a compiler must stop and go on, it takes far longer and makes slower code."""
        space = deformation.space((8, 12))
        noise = law if len(space.blocks) == 1 else Independent(*[law] * len(space.blocks))
        g = Sampler(
            lambda pictures: pictures.flatten(1),
            deformation,
            noise,
            96,
            padding="zeros",
            batch_size=4,
        )
        torch.compiler.reset()
        whole = torch.compile(g._executing, fullgraph=True, dynamic=False, backend="eager")
        raw = noise.raw(4, space, torch.Generator())
        pictures = torch.rand(4, 1, 8, 12, generator=torch.Generator())
        assert torch.equal(whole(raw, pictures, None), g._executing(raw, pictures, None))

    def test_one_picture_and_several_are_compiled_once_each(self, quickly: None) -> None:
        model = SmallCNN(num_classes=5, width=4, seed=3).eval()
        g = SmoothedClassifier(
            model, Rotation(), Uniform(2.0), 5, batch_size=32, compiled="default"
        )
        for together in (1, 2, 7):
            g.warm_up(IMAGE, together=together)
        with torch.compiler.set_stance("fail_on_recompile"):
            alone = [g.certify(image, n=50, n0=5, index=k) for k, image in enumerate(PICTURES)]
            shared = g.certify_all(list(PICTURES), 50, 5, indices=range(3))
        assert [c.counts for c in alone] == [c.counts for c in shared]

    def test_without_a_compiler_it_runs_as_it_is_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("no compiler found\nand so on")

        monkeypatch.setattr(torch, "compile", broken)
        g = sampler(how="max-autotune")
        with pytest.warns(ScarcityWarning, match="compiled here .no compiler found.: it runs as"):
            g.warm_up(PICTURES)
        assert g.compiled == "no"
        spans = [Span(0, Stage.SELECT, 0, 99)]
        assert np.array_equal(
            g.count(PICTURES, spans, 1, seed=0), sampler().count(PICTURES, spans, 1, seed=0)
        )

    def test_what_fails_uncompiled_too_is_told_as_such(self, quickly: None) -> None:
        """And does not turn compilation off: the next picture may be right."""
        g = sampler(how="default")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ModelError, match="the model's answer is an error"):
                g.warm_up(PICTURES.expand(-1, 2, -1, -1))
            g.warm_up(PICTURES)
        assert g.compiled == "default"

        def picky(pictures: Tensor) -> Tensor:
            raise TypeError("needs two arguments")

        with pytest.raises(ModelError, match="needs two arguments"):
            sampler(picky, how="default").warm_up(PICTURES)

    def test_too_little_memory_for_compiling_halves_the_batch(self, quickly: None) -> None:
        g = sampler(Greedy(30, RuntimeError).eval(), batch_size=40, how="default")
        with pytest.warns(ScarcityWarning, match="goes on with batches of 20"):
            g.warm_up(PICTURES)
        assert g.compiled == "default"

    def test_convolutions_are_tried_only_while_it_runs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
        before = torch.backends.cudnn.benchmark
        assert compiled(lambda: torch.backends.cudnn.benchmark, "default")()
        assert torch.backends.cudnn.benchmark == before

    def test_more_than_eight_models_are_compiled(self, quickly: None) -> None:
        """torch.compile gives up on code that it has seen eight times."""
        traces = 0

        def times(factor: float) -> Model:
            def model(pictures: Tensor) -> Tensor:
                nonlocal traces
                traces += torch.compiler.is_compiling()
                return pictures * factor

            return model

        for factor in range(10):
            compiled(times(factor), "default")(torch.ones(3))
        assert traces >= 10

    def test_an_unknown_name_is_told(self) -> None:
        with pytest.raises(InputError, match="compiled is 'fast'; it must be one of no, default"):
            sampler(how="fast")  # type: ignore[arg-type]

    def test_scores_are_checked(self, quickly: None) -> None:
        def wrong(pictures: Tensor) -> Tensor:
            return pictures.flatten(1)[:, :4]

        for how in ("no", "default"):
            g = sampler(wrong, how=how)
            with pytest.raises(ModelError, match="must be floating-point scores of shape"):
                g.count(PICTURES, [Span(0, Stage.SELECT, 0, 9)], 1, seed=0)

    def test_what_fills_up_a_batch_is_a_draw_of_the_batch(self, quickly: None) -> None:
        """A model may not answer at the ends of the noise, where nothing was drawn."""

        def upright(pictures: Tensor) -> Tensor:
            return pictures.flatten(1)[:, :5].log()

        g = SmoothedClassifier(
            upright, Translation(), Gaussian(0.01), 5, batch_size=64, compiled="default"
        )
        grey = torch.full((1, 12, 12), 0.5)
        plain = SmoothedClassifier(upright, Translation(), Gaussian(0.01), 5, padding="border")
        border = SmoothedClassifier(
            upright, Translation(), Gaussian(0.01), 5, padding="border", compiled="default"
        )
        assert border.count(grey, 70, Stage.PREDICT) == plain.count(grey, 70, Stage.PREDICT)
        assert g.sampler.compiled == "default"

    def test_a_shift_reaches_compiled_code(self, quickly: None) -> None:
        plain, quick = (
            SmoothedClassifier(
                sampler().model, Rotation(), Uniform(0.1), 5, batch_size=64, compiled=how
            )
            for how in ("no", "default")
        )
        counts = [
            g.count(IMAGE, 200, Stage.PREDICT, shift=shift)
            for g in (plain, quick)
            for shift in ([2.0], [0.0])
        ]
        assert counts[:2] == counts[2:]
        assert counts[0] != counts[1]

    def test_memory_that_runs_short_later_halves_the_compiled_batch(self, quickly: None) -> None:
        g = sampler(batch_size=64, how="default")
        spans = [Span(0, Stage.ESTIMATE, 0, 67)]
        expected = g.count(PICTURES, spans, 1, seed=0)
        inner = g._executed[False]
        calls = []

        def scarce(raw: Tensor, pictures: Tensor, shift: Tensor | None) -> Tensor:
            calls.append(len(raw))
            if len(calls) > 1 and len(raw) > 32:
                raise torch.OutOfMemoryError
            return inner(raw, pictures, shift)

        g._executed[False] = scarce
        with pytest.warns(ScarcityWarning, match="goes on with batches of 32"):
            found = g.count(PICTURES, spans, 1, seed=0)
        assert np.array_equal(found, expected)
        assert calls == [64, 64, 32]
