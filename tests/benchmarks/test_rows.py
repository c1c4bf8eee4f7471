"""Rows: what they hold, and what a failure leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from deformrs.benchmarks.networks import Network, new_network, some_images
from deformrs.benchmarks.plan import LARGE, SMALL, Case, Execution, chosen_cases, chosen_parts
from deformrs.benchmarks.rows import bare_forward, measure_row
from deformrs.benchmarks.timing import medians_in_turns, peak_bytes
from deformrs.errors import InputError
from deformrs.models.types import Classifier

CPU = torch.device("cpu")
HOW = Execution("cpu", "float32", "no", repeats=1)
CASE = Case("small_cnn:width=4", 16, 1, 32, 40, 2, 40, ("rotation",))


def network() -> Network:
    return new_network(CASE.network, CASE.channels, CASE.side)


def test_a_row_has_all_figures_and_its_ratios() -> None:
    row = measure_row(network(), CASE, "rotation", HOW)
    assert row.error is None
    assert row.warning is None
    assert row.compile_seconds is None
    assert row.samples_per_s
    assert row.bare_samples_per_s
    assert row.naive_samples_per_s
    assert row.ratio_to_bare == pytest.approx(row.samples_per_s / row.bare_samples_per_s, rel=0.01)
    assert row.ratio_to_naive == pytest.approx(
        row.samples_per_s / row.naive_samples_per_s, abs=0.02
    )
    assert row.peak_memory_bytes
    assert row.peak_memory_bytes > 10_000_000
    assert (row.device, row.model, row.family) == ("cpu", "small_cnn:width=4", "rotation")
    assert (row.n, row.images, row.batch_size, row.side) == (40, 2, 32, 16)


def test_a_network_that_fails_leaves_a_row_that_says_so() -> None:
    wrong = dataclasses.replace(network(), described=("SmallCNN", {"width": -1}))
    row = measure_row(wrong, CASE, "rotation", HOW)
    assert row.error is not None
    assert "width" in row.error
    assert row.samples_per_s is row.bare_samples_per_s is row.ratio_to_bare is None


def test_bare_runs_the_same_network_on_what_lies_ready() -> None:
    module = network().loaded("bfloat16", CPU).module
    assert isinstance(module, Classifier)
    seen: list[torch.Tensor] = []
    run = bare_forward(module, some_images(3, 1, 16), 8, "no")
    module.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    run(2)
    first, second = seen
    assert first.shape == (8, 1, 16, 16)
    assert first.dtype == torch.bfloat16
    assert first.data_ptr() == second.data_ptr()
    assert first.min() < 0, "normalised already"


def test_works_take_turns() -> None:
    said = ""

    def say(letter: str) -> Callable[[], None]:
        def work() -> None:
            nonlocal said
            said += letter

        return work

    medians = medians_in_turns([say("a"), say("b")], 3, CPU)
    assert said == "ababab"
    assert len(medians) == 2
    assert min(medians) >= 0


def test_the_peak_is_that_of_the_work_alone() -> None:
    large = peak_bytes(lambda: torch.ones(2**26), CPU)  # 268 MB
    small = peak_bytes(lambda: torch.ones(2**10), CPU)
    assert large - small > 200_000_000


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_every_size_has_the_six_families_of_the_paper(size: object) -> None:
    assert size in (SMALL, LARGE)
    cases = chosen_cases(SMALL if size is SMALL else LARGE)
    families = {"rotation", "scaling", "translation", "affine", "dct", "vector_field"}
    assert set(cases[0].families) == families


def test_cases_are_narrowed_and_changed() -> None:
    (case,) = chosen_cases(LARGE, networks=["resnet18"], families=["dct"], n=7, batch_size=3)
    assert (case.families, case.n, case.batch_size, case.images) == (("dct",), 7, 3, 5)
    assert case.naive_samples <= 10 * 7 * 5


def test_misspelt_words_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'scaling'"):
        chosen_cases(SMALL, families=["scalling"])
    with pytest.raises(InputError, match="did you mean 'small_cnn'"):
        chosen_cases(SMALL, networks=["smallcnn"])
    with pytest.raises(InputError, match="did you mean 'samples'"):
        chosen_parts(["sample"])
    with pytest.raises(InputError, match="must be measured in this size"):
        chosen_cases(LARGE, networks=["resnet50"], families=["dct"])
    assert chosen_parts(["cost", "rows"]) == ("rows", "cost")
