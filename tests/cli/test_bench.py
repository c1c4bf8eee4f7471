"""`deformrs bench`: the table, the JSON file, failed rows and bad options."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from commands import inside
from deformrs.cli import throughput
from deformrs.cli.throughput import (
    CPU,
    FAMILIES,
    Case,
    NaiveLoop,
    bare_forward,
    measure,
    random_images,
    random_network,
    seconds_in_turns,
    select_cases,
    smoothed_classifier,
)
from deformrs.errors import InputError
from deformrs.models.types import Classifier
from deformrs.randomness import Stage

TINY = Case("small_cnn:width=4", 16, 1, 32, 40, 2, 40, repeats=1)


def test_bench_prints_one_table_and_writes_its_rows(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    arguments = ("--network", "small_cnn", "--n", "20", "--images", "1", "--device", "cpu")
    families = ("--family", "rotation", "--family", "dct")
    printed, _ = inside("bench", *arguments, *families, "--out", str(out))
    assert all(word in printed for word in ("certified", "of bare", "times naive", "dct"))
    content = json.loads(out.read_text())
    assert content["machine"]["torch"] == torch.__version__
    assert [row["family"] for row in content["rows"]] == ["rotation", "dct"]
    for row in content["rows"]:
        assert row["error"] is None
        assert row["pictures"] == 1
        assert row["ratio_to_naive"] == pytest.approx(
            row["samples_per_s"] / row["naive_samples_per_s"], abs=0.01
        )
        assert row["ratio_to_bare"] > 0
    before = out.read_bytes()
    _, errors = inside("bench", *arguments, "--out", str(out), code=2)
    assert "exists" in errors
    assert out.read_bytes() == before


def test_a_failed_row_keeps_the_others_and_ends_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [Case("no_such_network", 16, 1, 32, 20, 1, 20), TINY]
    monkeypatch.setattr(throughput, "select_cases", lambda *_, **__: cases)
    out = tmp_path / "bench.json"
    printed, errors = inside("bench", "--device", "cpu", "--out", str(out), code=1)
    assert "failed: no_such_network, rotation" in printed
    assert "1 of 2 rows failed" in errors
    failed, done = json.loads(out.read_text())["rows"]
    assert "no_such_network" in failed["error"]
    assert failed["samples_per_s"] is None
    assert done["samples_per_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--family", "rotatoin"), 1, "did you mean 'rotation'?"),
        (("--network", "smallcnn"), 1, "did you mean 'small_cnn'?"),
        (("--compile", "defualt"), 2, "did you mean 'default'?"),
        (("--n", "0"), 2, "--n"),
        (("--device", "abacus"), 1, "abacus"),
        (("--out", "no/such/folder/b.json"), 2, "a folder that exists"),
    ],
)
def test_bad_options_fail_before_anything_is_measured(
    arguments: tuple[str, ...], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "measure", lambda case: pytest.fail("measured"))
    place = () if "--device" in arguments else ("--device", "cpu")
    _, errors = inside("bench", *arguments, *place, code=code)
    assert message in errors


def test_cases_are_narrowed_and_changed() -> None:
    gpu = torch.device("cuda")
    (case,) = select_cases(
        gpu, "bfloat16", networks=["resnet18"], families=["dct"], n=7, batch_size=3
    )
    assert (case.family, case.n, case.batch_size, case.images) == ("dct", 7, 3, 5)
    assert case.naive_samples == 10 * 7 * 5
    for device in (CPU, gpu):
        cases = select_cases(device, "float32")
        first = [case.family for case in cases if case.network == cases[0].network]
        assert first == ["rotation", "scaling", "translation", "affine", "dct", "vector_field"]
    with pytest.raises(InputError, match="must be one of"):
        select_cases(gpu, "float32", networks=["small_cnn"])


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_naive_loop_counts_the_same_classifier(family: str) -> None:
    """False alarms: the bound below is exceeded with probability at most 1e-6 for each class."""
    n = 1000
    case = Case("small_cnn:width=4", 16, 1, 256, n, 1, n, family)
    image = random_images(1, 1, 16, seed=5)[0]
    naive = NaiveLoop(case).count(image, n)
    ours = smoothed_classifier(case).count(image, n, Stage.ESTIMATE)
    assert sum(naive) == sum(ours) == n
    assert max(ours) < n, "a class that never changes would show nothing"
    # Hoeffding, for the difference of two means of n samples each.
    allowed = math.sqrt(math.log(2 / 1e-6) / n) * n
    assert all(abs(a - b) <= allowed for a, b in zip(naive, ours, strict=True))


def test_the_bare_network_runs_on_one_normalised_batch() -> None:
    classifier = smoothed_classifier(
        Case("resnet18:width=4", 16, 3, 8, 8, 1, 8, "rotation", CPU, "bfloat16")
    )
    module = classifier.model
    assert isinstance(module, Classifier)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in module.modules()), "folded"
    inputs: list[Tensor] = []
    run = bare_forward(classifier, random_images(3, 3, 16))
    module.network.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    run(2)
    first, second = inputs
    assert (first.shape, first.dtype) == ((8, 3, 16, 16), torch.bfloat16)
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert first.data_ptr() == second.data_ptr()
    assert first.min() < 0, "normalised"


def test_random_networks_have_no_layer_without_weight() -> None:
    """Zeros would cost a GPU less than the weights of a trained network."""
    network = random_network("resnet18:width=4", 3, 16).module
    assert all(weight.any() for weight in network.parameters() if weight.ndim == 4)
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert all(norm.weight.any() and norm.running_mean.any() for norm in norms)  # type: ignore[union-attr]
    assert not any(part.training for part in network.modules())
    again = random_network("resnet18:width=4", 3, 16).module.state_dict()
    assert all(torch.equal(v, again[k]) for k, v in network.state_dict().items())


def test_works_take_turns() -> None:
    order: list[str] = []
    times = seconds_in_turns([lambda: order.append("a"), lambda: order.append("b")], 3, CPU)
    assert "".join(order) == "ababab"
    assert [len(own) for own in times] == [3, 3]


def test_a_measured_row_names_its_case() -> None:
    row = measure(TINY)
    assert row.error is None
    assert row.compile_seconds is None
    stored = row.to_json()
    assert (stored["device"], stored["model"], stored["n"]) == ("cpu", "small_cnn:width=4", 40)
