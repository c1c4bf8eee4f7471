"""The smoothed classifier: reproducible noise, counts, predictions and certificates."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import deformrs
from deformrs import (
    Affine,
    Certificate,
    Gaussian,
    Independent,
    Rotation,
    SmoothedClassifier,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.errors import InputError, ModelError
from deformrs.models import SmallCNN, load_model
from deformrs.noise.law import Generator
from deformrs.plan import SamplingPlan
from deformrs.randomness import BLOCK, Draws, Philox, Span, Stage, in_batches
from deformrs.space import Space
from examples import IMAGE, Model, smoothed


class TestReproducibility:
    def test_counts_do_not_depend_on_the_batch_size(self) -> None:
        counts = {b: smoothed(batch_size=b).certify(IMAGE, n=1500).counts for b in (1, 7, 64, 1000)}
        assert len(set(counts.values())) == 1
        assert max(counts[1].estimation) < 1500, "a constant classifier would show nothing"

    @pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
    @pytest.mark.parametrize("batch_size", [1, 7, 256, 300, 5000])
    def test_noise_is_cut_into_batches_without_loss(self, n: int, batch_size: int) -> None:
        space = Translation().space((8, 8))

        def draw(size: int) -> Tensor:
            kept = Draws(Gaussian(1.0), space, torch.device("cpu"), seed=4)
            rows = [kept.of(batch) for batch in in_batches([Span(2, Stage.ESTIMATE, 0, n)], size)]
            assert all(len(batch) == size for batch in rows[:-1])
            return torch.cat(rows)

        assert draw(batch_size).shape == (n, 2)
        assert torch.equal(draw(batch_size), draw(10**6))

    def test_a_smaller_n_is_the_beginning_of_a_larger_one(self) -> None:
        g = smoothed()
        few, many = (g.certify(IMAGE, n=n).counts.estimation for n in (300, 700))
        assert all(a <= b for a, b in zip(few, many, strict=True))

    def test_seed_index_and_stage_each_change_the_noise(self) -> None:
        g = smoothed()
        base = g.count(IMAGE, 2000, Stage.ESTIMATE, seed=0, index=0)
        assert g.count(IMAGE, 2000, Stage.ESTIMATE, seed=0, index=0) == base
        assert g.count(IMAGE, 2000, Stage.ESTIMATE, seed=1, index=0) != base
        assert g.count(IMAGE, 2000, Stage.ESTIMATE, seed=0, index=1) != base
        assert g.count(IMAGE, 2000, Stage.PREDICT, seed=0, index=0) != base

    def test_order_of_images_does_not_matter(self) -> None:
        images = [torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(k)) for k in (5, 6)]
        g = smoothed()
        forwards = [g.certify(images[k], n=300, index=k) for k in (0, 1)]
        backwards = [g.certify(images[k], n=300, index=k) for k in (1, 0)]
        assert forwards == backwards[::-1]

    def test_global_random_state_is_neither_used_nor_changed(self) -> None:
        before = torch.get_rng_state()
        first = smoothed().certify(IMAGE, n=300)
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(7)
        assert smoothed().certify(IMAGE, n=300) == first
        torch.set_rng_state(before)

    def test_neighbouring_blocks_are_uncorrelated(self) -> None:
        """The mean of 2,000 products of neighbours, for each of 256 draws and for all of them.

        Under independence each is standard normal after scaling; the largest of 257 exceeds 5.5
        with probability below 1e-5.
        """
        space = Translation().space((8, 8))
        draws = Draws(Gaussian(1.0), space, torch.device("cpu"), seed=0)
        rows = draws.of([Span(0, Stage.ESTIMATE, 0, 2001 * BLOCK)])[:, 0].reshape(-1, BLOCK)
        products = (rows[:-1] * rows[1:]).double()
        each = products.sum(dim=0) / math.sqrt(len(products))
        assert each.abs().max() < 5.5
        assert abs(products.sum()) / math.sqrt(products.numel()) < 5.5


class TestSampling:
    @pytest.mark.parametrize("law", [Uniform((0.5, 0.1)), Gaussian((0.5, 0.1))])
    def test_scales_are_per_parameter(self, law: Uniform | Gaussian) -> None:
        draws = law.sample(20_000, Translation().space((8, 8)), Philox(0))
        deviations = draws.std(dim=0)
        factor = 3**-0.5 if isinstance(law, Uniform) else 1.0
        # Five standard errors of a standard deviation of 20,000 draws: 2.5 %.
        torch.testing.assert_close(
            deviations, torch.tensor([0.5, 0.1]) * factor, rtol=0.025, atol=0
        )

    def test_uniform_noise_stays_inside_and_fills_the_box(self) -> None:
        draws = Uniform(0.3).sample(20_000, Affine().space((8, 8)), Philox(0))
        assert draws.shape == (20_000, 6)
        assert -0.3 <= draws.min() < -0.2999
        assert 0.2999 < draws.max() <= 0.3

    def test_independent_samples_each_block_by_its_law(self) -> None:
        space = deformrs.Compose(Rotation(), Translation()).space((8, 8))
        law = Independent(Uniform(0.2), Gaussian(3.0))
        draws = law.sample(10_000, space, Philox(0))
        assert draws[:, 0].abs().max() <= 0.2
        assert 2.9 < draws[:, 1:].std() < 3.1
        correlation = np.corrcoef(draws.numpy().T)
        assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 0.05

    def test_counting_finds_every_class(self) -> None:
        """Answers cycle through the classes, whatever the batch."""
        turn = iter(range(10**6))

        def cycle(images: Tensor) -> Tensor:
            return torch.eye(5)[[next(turn) % 5 for _ in images]]

        assert smoothed(cycle, batch_size=13, check_model=False).count(
            IMAGE, 1001, Stage.PREDICT
        ) == (
            201,
            200,
            200,
            200,
            200,
        )

    def test_memory_does_not_grow_with_n(self) -> None:
        """Two batches at most are alive at once: the one at work and the one before it."""
        born: list[weakref.ref[Tensor]] = []
        largest = most_alive = 0

        def watch(images: Tensor) -> Tensor:
            nonlocal largest, most_alive
            scores = torch.eye(5)[:1].expand(len(images), 5).clone()
            born.extend((weakref.ref(images), weakref.ref(scores)))
            largest = max(largest, len(images))
            most_alive = max(most_alive, sum(ref() is not None for ref in born))
            return scores

        smoothed(watch, batch_size=100, check_model=False).count(IMAGE, 20_000, Stage.PREDICT)
        assert largest == 100
        assert most_alive <= 4

    def test_noise_is_drawn_as_it_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Never more than a block ahead of the images."""
        drawn = seen = most_ahead = 0
        original = Uniform.raw

        def counted(law: Uniform, n: int, space: Space, generator: Generator) -> Tensor:
            nonlocal drawn
            drawn += n
            return original(law, n, space, generator)

        def watch(images: Tensor) -> Tensor:
            nonlocal seen, most_ahead
            seen += len(images)
            most_ahead = max(most_ahead, drawn - seen)
            return torch.zeros(len(images), 5)

        monkeypatch.setattr(Uniform, "raw", counted)
        smoothed(watch, batch_size=100, check_model=False).count(IMAGE, 20_000, Stage.PREDICT)
        assert drawn >= seen == 20_000
        assert most_ahead <= BLOCK

    def test_padding_reaches_the_images(self) -> None:
        """A white image turned about shows black corners, or none."""
        darkest: dict[str, float] = {}
        for padding in ("zeros", "border", "reflection"):

            def watch(images: Tensor, padding: str = padding) -> Tensor:
                darkest[padding] = min(darkest.get(padding, 1.0), float(images.min()))
                return torch.zeros(len(images), 2)

            g = SmoothedClassifier(
                watch, Rotation(), Uniform(1.0), 2, padding=padding, check_model=False
            )
            g.count(torch.ones(1, 8, 8), 50, Stage.PREDICT)
        assert darkest["zeros"] == 0
        assert darkest["border"] > 0.999
        assert darkest["reflection"] > 0.999

    def test_the_scale_is_not_rounded_to_float32(self) -> None:
        """π in float32 is 2.8e-8 too large: every draw would be, and the mean would show it."""
        law, space = Uniform(math.pi), Rotation().space((8, 8))
        draws = law.sample(10_000, space, Philox(0)).double()
        raw = law.raw(10_000, space, Philox(0))
        unit = law.standard(raw).double()
        ratio = (draws / unit).mean().item() / math.pi - 1
        assert abs(ratio) < 2e-9  # one rounding a draw, of 3e-8 at most, averages out

    def test_the_model_sees_the_precision_of_the_image(self) -> None:
        seen: set[torch.dtype] = set()

        def watch(images: Tensor) -> Tensor:
            seen.add(images.dtype)
            return images.new_zeros(len(images), 5)

        smoothed(watch).count(IMAGE.bfloat16(), 10, Stage.PREDICT)
        assert seen == {torch.bfloat16}

    def test_a_high_dimensional_field_on_a_wide_image(self) -> None:
        g = SmoothedClassifier(
            SmallCNN(num_classes=3, channels=3, width=4).eval(), VectorField(), Gaussian(0.05), 3
        )
        certificate = g.certify(torch.rand(3, 10, 14, generator=torch.Generator()), n=300)
        assert certificate.space.dim == 280
        assert certificate.counts.n == 300


class TestPredict:
    def test_abstains_on_a_tie_and_answers_when_clear(self) -> None:
        def side(threshold: float) -> Model:
            ramp = torch.linspace(0, 1, 16).expand(1, 16, 16)

            def classify(images: Tensor) -> Tensor:
                right = images[:, 0, 7:9, 7:9].mean(dim=(1, 2)) > threshold
                return torch.stack([~right, right], dim=1).float()

            self.ramp = ramp
            return classify

        for threshold, expected in ((0.5, None), (0.45, 1), (0.55, 0)):
            g = SmoothedClassifier(side(threshold), Translation(), Gaussian(0.1), 2)
            assert g.predict(self.ramp, n=1000) == expected

    def test_guarantee_predict_abstains_at_its_own_level(self) -> None:
        """66 of 100 answers: the exact two-sided p-value is 0.0018 (scipy.stats.binomtest)."""

        def mostly_one(images: Tensor) -> Tensor:
            return torch.eye(5)[[1 if k < 66 else 0 for k in range(len(images))]]

        g = smoothed(mostly_one, batch_size=100)
        assert g.predict(IMAGE, n=100, alpha=0.0019) == 1
        assert g.predict(IMAGE, n=100, alpha=0.0017) is None

    def test_prediction_and_certificate_agree(self) -> None:
        g = smoothed()
        certificate = g.certify(IMAGE, n=2000)
        assert certificate.prediction is not None
        assert g.predict(IMAGE) == certificate.prediction

    def test_shift_moves_the_noise(self) -> None:
        """At λ = 0.01 the smoothed classifier at shift θ is the plain one at angle θ."""
        model = SmallCNN(num_classes=5, width=4, seed=3).eval()
        g = SmoothedClassifier(model, Rotation(), Uniform(1e-4), 5)
        angles = torch.linspace(-3, 3, 25)[:, None]
        whole_turns = [2 * math.pi * 1e8]
        assert g.predict(IMAGE, n=100, shift=whole_turns) == g.predict(IMAGE, n=100)
        plain = model(Rotation().apply(IMAGE, angles)).argmax(dim=1)
        assert len(plain.unique()) > 1
        for angle, answer in zip(angles.tolist(), plain.tolist(), strict=True):
            assert g.predict(IMAGE, n=100, shift=angle) in (answer, None)


def test_public_names_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of the README and of the design, as they stand."""
    model = SmallCNN().eval()
    image = torch.rand(1, 28, 28, generator=torch.Generator())
    g = SmoothedClassifier(model, Rotation(), Uniform(math.radians(54)), num_classes=10)
    c = g.certify(image, n=1_000, n0=100, alpha=1e-3, seed=0)
    assert isinstance(c, Certificate)
    assert c.prediction is None or 0 <= c.prediction < 10
    assert c.radius >= 0
    assert 0 <= c.p_lower < 1
    assert c.covers([0.3]) in (True, False)
    assert g.predict(image, n=1000, alpha=1e-3) in (None, *range(10))
    assert capsys.readouterr().out == "", "the library does not print"


@pytest.mark.parametrize("name", ["model", "noise", "deformation", "padding", "num_classes"])
def test_a_smoothed_classifier_is_immutable(name: str) -> None:
    g = smoothed()
    with pytest.raises(AttributeError):
        setattr(g, name, getattr(g, name))


def test_guarantee_the_noise_sampled_is_the_noise_certified() -> None:
    g = smoothed()
    before = g.certify(IMAGE, n=500)
    g.sampler.noise = Uniform(0.01)  # type: ignore[attr-defined]
    assert g.certify(IMAGE, n=500) == before


def test_plain_predictions_are_made_in_batches() -> None:
    sizes: list[int] = []

    def watch(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return torch.eye(5)[: len(images)]

    assert smoothed(watch, batch_size=2).classify([IMAGE] * 5) == [0, 1, 0, 1, 0]
    assert sizes == [2, 2, 1]


def test_a_law_cannot_override_how_it_is_sampled() -> None:
    with pytest.raises(InputError, match="must stay as it is: certification draws by raw and par"):

        class Zero(Uniform):
            name = "zero"

            def sample(self, n: int, space: Space, generator: Generator) -> Tensor:
                return torch.zeros(n, space.dim)


class TestAsPeopleWriteIt:
    def test_the_number_of_classes_is_read_from_the_model(self) -> None:
        given = smoothed()
        g = SmoothedClassifier(given.model, given.deformation, given.noise)
        assert g.certify(IMAGE, n=100) == given.certify(IMAGE, n=100)
        assert g.num_classes == given.num_classes
        wrong = SmoothedClassifier(given.model, given.deformation, given.noise, 4)
        with pytest.raises(ModelError, match="set num_classes"):
            wrong.certify(IMAGE, n=100)

    def test_a_module_in_training_mode_is_not_run_to_count_classes(self) -> None:
        model = SmallCNN(width=4)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(ModelError, match="training mode"):
            SmoothedClassifier(model, Rotation(), Uniform(0.5)).certify(IMAGE, n=100)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    def test_a_batch_is_any_sequence_of_images(self) -> None:
        images = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        plan, g = SamplingPlan(n=100), smoothed()
        expected = g.certify_batch(list(images), [0, 1, 2], plan)
        assert g.certify_batch(images, plan=plan) == expected
        assert g.certify_batch(images.numpy(), plan=plan) == expected
        assert g.certify_batch([image.numpy()[0] for image in images], plan=plan) == expected
        with pytest.raises(InputError, match=r"must be N x C x H x W.*images\[:, None\]"):
            g.certify_batch(images[:, 0], plan=plan)
        with pytest.raises(InputError, match="must be a SamplingPlan"):
            g.certify_batch(images, plan={"n": 100})  # type: ignore[arg-type]

    @pytest.mark.parametrize("wrap", [lambda z: {"logits": z, "loss": 0}, lambda z: (z,)])
    def test_logits_are_unwrapped(self, wrap: Callable[[Tensor], object]) -> None:
        g = smoothed()
        wrapped = smoothed(lambda images: wrap(g.model(images)))  # type: ignore[arg-type, return-value]
        assert wrapped.certify(IMAGE, n=100) == g.certify(IMAGE, n=100)

    def test_a_loaded_model_is_its_module(self) -> None:
        loaded = load_model(SmallCNN(width=4, seed=0))
        g = SmoothedClassifier(loaded, Rotation(), Uniform(0.5))
        assert g.model is loaded.module
        assert g.certify(IMAGE, n=20).counts.n == 20

    def test_repr_names_the_model_in_one_line(self) -> None:
        loaded = load_model(SmallCNN(width=4, seed=0))
        g = SmoothedClassifier(loaded, Rotation(), Uniform(0.5), padding="border")
        assert repr(g) == (
            "SmoothedClassifier(Classifier(SmallCNN), Rotation(), Uniform(scale=0.5), "
            "padding='border')"
        )
        function = SmoothedClassifier(nan_model, Rotation(), Uniform(1))
        assert "(nan_model, Rotation()" in repr(function)


def nan_model(images: Tensor) -> Tensor:
    return torch.full((len(images), 5), math.nan)
