"""Compiled models: the same counts, and a plain model where compilation fails."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from deformrs import (
    Deformation,
    Gaussian,
    Independent,
    Rotation,
    SmoothedClassifier,
    Translation,
    Uniform,
)
from deformrs.errors import InputError, ModelError, ScarcityWarning
from deformrs.execution import compiled
from deformrs.models import SmallCNN
from deformrs.plan import SamplingPlan
from deformrs.randomness import Philox, Span, Stage
from deformrs.sampling import Progress, Sampler
from examples import DEFORMATIONS, IMAGE, IMAGES, LimitedMemory, Model, sampler


@pytest.fixture
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace and cache graphs, but compile no code."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when it first compiles
class TestCompiled:
    def test_the_same_counts_for_every_batch_size_and_path(self) -> None:
        spans = [Span(k, Stage.ESTIMATE, 10 * k, 200 + k, k, k) for k in range(3)]
        expected = sampler().count(IMAGES, spans, 3, seed=0)
        g = sampler(batch_size=50, compiled="default")
        sampled: list[int] = []
        found = g.count(IMAGES, spans, 3, seed=0, progress=Progress(sampled=sampled.append))
        assert g.compiled == "default"
        assert np.array_equal(found, expected)
        assert sum(sampled) == expected.sum()

    def test_it_is_compiled_once_and_always_for_one_shape(self, eager_backend: None) -> None:
        def few(images: Tensor) -> Tensor:
            return images.flatten(1)[:, :5]

        g = SmoothedClassifier(few, Rotation(), Uniform(2.0), 5, batch_size=32, compiled="default")
        g.warm_up(IMAGE)
        with torch.compiler.set_stance("fail_on_recompile"):
            for n in (11, 32, 50):
                assert g.certify(IMAGE, n=n, n0=5).counts.n == n
        with pytest.raises(InputError, match=r"must have the shape compiled for, \(1, 12, 12\)"):
            g.certify(torch.rand(1, 14, 14, generator=torch.Generator()), n=11)

    @pytest.mark.parametrize("deformation", DEFORMATIONS)
    @pytest.mark.parametrize("law", [Gaussian(0.1), Uniform(0.1)], ids=repr)
    def test_noise_and_warp_are_one_program(
        self, deformation: Deformation, law: Gaussian | Uniform
    ) -> None:
        """Where a compiler must stop and go on, it takes far longer and makes slower code."""
        space = deformation.space((8, 12))
        noise = law if len(space.blocks) == 1 else Independent(*[law] * len(space.blocks))
        g = Sampler(
            lambda images: images.flatten(1),
            deformation,
            noise,
            96,
            padding="zeros",
            batch_size=4,
        )
        torch.compiler.reset()
        whole = torch.compile(g._logits_under, fullgraph=True, dynamic=False, backend="eager")
        raw = noise.raw(4, space, Philox(0))
        images = torch.rand(4, 1, 8, 12, generator=torch.Generator())
        assert torch.equal(whole(raw, images, None), g._logits_under(raw, images, None))

    def test_scales_in_text_are_compiled_as_numbers(self, eager_backend: None) -> None:
        def few(images: Tensor) -> Tensor:
            return images.flatten(1)[:, :5]

        law = Gaussian(("2px", "1px"))
        plain = SmoothedClassifier(few, Translation(), law, 5).certify(IMAGE, n=50)
        g = SmoothedClassifier(few, Translation(), law, 5, batch_size=32, compiled="default")
        g.warm_up(IMAGE)
        with torch.compiler.set_stance("fail_on_recompile"):
            assert g.certify(IMAGE, n=50) == plain
        assert g.sampler.compiled == "default"

    def test_one_image_and_several_are_compiled_once_each(self, eager_backend: None) -> None:
        model = SmallCNN(num_classes=5, width=4, seed=3).eval()
        g = SmoothedClassifier(
            model, Rotation(), Uniform(2.0), 5, batch_size=32, compiled="default"
        )
        for together in (1, 2, 7):
            g.warm_up(IMAGE, together=together)
        with torch.compiler.set_stance("fail_on_recompile"):
            alone = [g.certify(image, n=50, n0=5, index=k) for k, image in enumerate(IMAGES)]
            shared = g.certify_batch(list(IMAGES), range(3), SamplingPlan(50, 5))
        assert [c.counts for c in alone] == [c.counts for c in shared]

    def test_without_a_compiler_it_runs_uncompiled_and_warns(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("no compiler found\nand so on")

        monkeypatch.setattr(torch, "compile", broken)
        g = sampler(compiled="max-autotune")
        with pytest.warns(ScarcityWarning, match="no compiler found.; running uncompiled"):
            g.warm_up(IMAGES)
        assert g.compiled == "no"
        spans = [Span(0, Stage.SELECT, 0, 99)]
        assert np.array_equal(
            g.count(IMAGES, spans, 1, seed=0), sampler().count(IMAGES, spans, 1, seed=0)
        )

    def test_an_error_of_the_model_is_no_error_of_compilation(self, eager_backend: None) -> None:
        """And does not turn compilation off: the next image may be right."""
        g = sampler(compiled="default")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ModelError, match="the model's output is an error"):
                g.warm_up(IMAGES.expand(-1, 2, -1, -1))
            g.warm_up(IMAGES)
        assert g.compiled == "default"

        def picky(images: Tensor) -> Tensor:
            raise TypeError("needs two arguments")

        with pytest.raises(ModelError, match="needs two arguments"):
            sampler(picky, compiled="default").warm_up(IMAGES)

    def test_too_little_memory_for_compiling_halves_the_batch(self, eager_backend: None) -> None:
        g = sampler(LimitedMemory(30, RuntimeError).eval(), batch_size=40, compiled="default")
        with pytest.warns(ScarcityWarning, match="continuing with batches of 20"):
            g.warm_up(IMAGES)
        assert g.compiled == "default"

    def test_convolutions_are_tried_only_while_it_runs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
        before = torch.backends.cudnn.benchmark
        assert compiled(lambda: torch.backends.cudnn.benchmark, "default")()
        assert torch.backends.cudnn.benchmark == before

    def test_more_than_eight_models_are_compiled(self, eager_backend: None) -> None:
        """torch.compile gives up on code that it has seen eight times."""
        traces = 0

        def times(factor: float) -> Model:
            def model(images: Tensor) -> Tensor:
                nonlocal traces
                traces += torch.compiler.is_compiling()
                return images * factor

            return model

        for factor in range(10):
            compiled(times(factor), "default")(torch.ones(3))
        assert traces >= 10

    def test_an_unknown_mode_is_refused(self) -> None:
        with pytest.raises(InputError, match="compiled is 'fast'; it must be one of no, default"):
            sampler(compiled="fast")  # type: ignore[arg-type]

    def test_scores_are_checked(self, eager_backend: None) -> None:
        def wrong(images: Tensor) -> Tensor:
            return images.flatten(1)[:, :4]

        for how in ("no", "default"):
            g = sampler(wrong, compiled=how)
            with pytest.raises(ModelError, match="must be floating-point logits of shape"):
                g.count(IMAGES, [Span(0, Stage.SELECT, 0, 9)], 1, seed=0)

    def test_a_batch_is_filled_up_with_one_of_its_own_draws(self, eager_backend: None) -> None:
        """A model may not answer at the ends of the noise, where nothing was drawn."""

        def upright(images: Tensor) -> Tensor:
            return images.flatten(1)[:, :5].log()

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

    def test_a_shift_reaches_compiled_code(self, eager_backend: None) -> None:
        plain, quick = (
            SmoothedClassifier(
                sampler()._model, Rotation(), Uniform(0.1), 5, batch_size=64, compiled=how
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

    def test_memory_that_runs_short_halves_the_compiled_batch(self, eager_backend: None) -> None:
        g = sampler(batch_size=64, compiled="default")
        spans = [Span(0, Stage.ESTIMATE, 0, 67)]
        expected = g.count(IMAGES, spans, 1, seed=0)
        inner = g._programs[False]
        calls = []

        def scarce(raw: Tensor, images: Tensor, shift: Tensor | None) -> Tensor:
            calls.append(len(raw))
            if len(calls) > 1 and len(raw) > 32:
                raise torch.OutOfMemoryError
            return inner(raw, images, shift)

        g._programs[False] = scarce
        with pytest.warns(ScarcityWarning, match="continuing with batches of 32"):
            found = g.count(IMAGES, spans, 1, seed=0)
        assert np.array_equal(found, expected)
        assert calls == [64, 64, 32]
