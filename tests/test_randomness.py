"""Noise comes from streams that never meet, whatever the global state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from deformrs import Gaussian, NoiseLaw, Rotation, SmoothedClassifier, Translation, Uniform
from deformrs.errors import InputError
from deformrs.noise.law import Generator
from deformrs.randomness import BLOCK, Draws, Philox, Span, Stage, TorchGenerator, generator_for
from deformrs.space import Space
from examples import IMAGE

CPU = torch.device("cpu")
SPACE = Translation().space((8, 8))


def philox(key: int, counter: tuple[int, int, int, int]) -> Iterator[int]:
    """Yield the 64-bit words of Philox 4x64-10 (Salmon et al., SC 2011), written anew here."""
    whole = 2**64
    first = sum(word * whole**i for i, word in enumerate(counter))
    while True:
        first += 1  # NumPy counts before it draws
        c = [first // whole**i % whole for i in range(4)]
        k = [key % whole, key // whole]
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [b // whole ^ c[1] ^ k[0], b % whole, a // whole ^ c[3] ^ k[1], a % whole]
            k = [(k[0] + 0x9E3779B97F4A7C15) % whole, (k[1] + 0xBB67AE8584CAA73B) % whole]
        yield from c


@pytest.mark.parametrize(
    ("seed", "index", "stage", "block"),
    [(0, 0, Stage.SELECT, 0), (2**64 - 1, 2**40, Stage.PREDICT, 9), (5, 1, Stage.ESTIMATE, 390)],
)
def test_guarantee_every_block_has_a_stream_of_its_own(
    seed: int, index: int, stage: Stage, block: int
) -> None:
    """The numbers of Philox are those of the key `seed` from (·, block, stage, index) on."""
    drawn = Draws(Uniform(1.0), SPACE, CPU, seed=seed)
    assert isinstance(generator_for(CPU, seed), Philox)
    span = Span(index, stage, block * BLOCK, block * BLOCK + 3)
    words = islice(philox(seed, (0, block, stage, index)), 3)
    halves = [half for word in words for half in (word % 2**32, word // 2**32)]
    expected = 2 * (np.array(halves) >> 8) / 2**24 - 1
    np.testing.assert_array_equal(Uniform(1.0).standard(drawn.of([span])).flatten(), expected)


def test_seeds_beyond_32_bits_make_other_noise() -> None:
    """torch's own generator on the CPU looks at the low 32 bits only."""
    one, other = (torch.Generator().manual_seed(5 + far) for far in (0, 2**32))
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=other))
    seeds = (5, 5 + 2**32, 5 + 2**63)
    rows = [Draws(Uniform(1.0), SPACE, CPU, seed=s).of([SPAN]) for s in seeds]
    assert not any(torch.equal(rows[i], rows[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


SPAN = Span(2, Stage.ESTIMATE, 0, 4 * BLOCK)


@pytest.mark.parametrize("law", [Uniform(1.0), Gaussian(1.0)])
def test_no_two_draws_of_two_images_are_equal(law: NoiseLaw) -> None:
    """8,000 rows of two normal float32, or of 48 bits: two agree with probability below 1e-6."""
    draws = Draws(law, SPACE, CPU, seed=1)
    spans = [Span(i, stage, 0, 1000) for i in range(4) for stage in (Stage.SELECT, Stage.ESTIMATE)]
    assert len({tuple(row) for row in draws.of(spans).tolist()}) == 8000


@contextmanager
def hostile_defaults(name: str) -> Iterator[None]:
    """Set global state of torch as a model's file could, and restore it."""
    threads = torch.get_num_threads()
    try:
        match name:
            case "dtype":
                torch.set_default_dtype(torch.bfloat16)
            case "double":
                torch.set_default_dtype(torch.float64)
            case "device":
                torch.set_default_device("meta")
            case "deterministic":
                torch.use_deterministic_algorithms(True)
            case "threads":
                torch.set_num_threads(1 if threads > 1 else 2)
            case "seed":
                torch.manual_seed(1)
                np.random.seed(1)  # noqa: NPY002  # the state that must not matter
            case _:
                raise AssertionError(name)
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["dtype", "double", "device", "deterministic", "threads", "seed"])
@pytest.mark.parametrize("law", [Uniform(0.5), Gaussian(0.5), Uniform("30deg")])
def test_global_state_changes_no_count(law: NoiseLaw, name: str) -> None:
    def classify(images: Tensor) -> Tensor:
        """Five classes by the brightest of five rows: exact, in any number of threads."""
        return images[:, 0, :10].view(-1, 5, 24).amax(dim=2)

    def counts() -> object:
        g = SmoothedClassifier(classify, Rotation(), law, 5)
        return g.certify(IMAGE, n=3000, seed=3).counts

    expected = counts()
    draws = Draws(law, Rotation().space((12, 12)), CPU, seed=3).of([SPAN])
    with hostile_defaults(name):
        assert counts() == expected
        again = Draws(law, Rotation().space((12, 12)), CPU, seed=3).of([SPAN])
        assert again.dtype == torch.float32
        assert torch.equal(again, draws)


@pytest.mark.parametrize("device", [CPU])
def test_torchs_generator_names_precision_and_device(device: torch.device) -> None:
    generator = TorchGenerator(torch.Generator(device), seed=1)
    for name in ("dtype", "device"):
        with hostile_defaults(name):
            for draw in (generator.uniform, generator.normal):
                assert draw(3, 2).dtype == torch.float32
                assert draw(3, 2).device == device


def test_draws_of_another_precision_or_shape_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Uniform.raw
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "torch.bfloat16": lambda drawn: drawn.bfloat16(),
        "torch.float64": lambda drawn: drawn.double(),
        "(256, 1)": lambda drawn: drawn[:, :1],
    }
    for words, change in changes.items():

        def changed(law: Uniform, n: int, space: Space, generator: Generator) -> Tensor:
            return change(raw(law, n, space, generator))  # noqa: B023  # used at once

        monkeypatch.setattr(Uniform, "raw", changed)
        with pytest.raises(InputError, match="raw draws of Uniform") as caught:
            Draws(Uniform(1.0), SPACE, CPU, seed=1).of([SPAN])
        assert words in str(caught.value)


@pytest.mark.parametrize(("draw", "deviation"), [("uniform", 12**-0.5), ("normal", 1.0)])
def test_philox_draws_the_standard_laws(draw: str, deviation: float) -> None:
    """Kolmogorov–Smirnov of 200,000 numbers at level 1e-6, for 2 laws."""
    from scipy.stats import kstest

    numbers = getattr(Philox(11), draw)(100_000, 2).double().flatten().numpy()
    assert kstest(numbers, "uniform" if draw == "uniform" else "norm").pvalue > 1e-6
    assert abs(numbers.std() / deviation - 1) < 0.01
