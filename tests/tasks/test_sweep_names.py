"""Folders of a sweep: readable names, harmless, no two alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deformrs.cli.sweep_file import Names, RunsAsked, SweepAsked, Values, made_name
from deformrs.cli.sweep_plan import plan_sweep
from deformrs.errors import InputError

TRAIN: Values = {"data": "digits", "model": "small_cnn"}


def names(*runs: RunsAsked) -> list[str]:
    return [run.name for run in plan_sweep(SweepAsked(Path("out"), "", TRAIN, {}, runs)).runs]


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("rotation", "uniform:54deg"), "rotation_uniform-54deg"),
        (("rotation", "uniform:54°"), "rotation_uniform-54deg"),
        (("scaling", "uniform:30%"), "scaling_uniform-30pct"),
        (("affine", "gaussian:0.1, 0.2"), "affine_gaussian-0.1-0.2"),
        (("dct:k=3,basis=cosine", "gaussian:1e-3"), "dct-k=3-basis=cosine_gaussian-1e-3"),
        (("/home/me/lens.py:Lens", "gaussian:.1"), "lens-Lens_gaussian-.1"),
        (("rotation+a/lens.py:Lens", ""), "rotation-lens-Lens"),
        (("../..", "a"), "x_a"),
    ],
)
def test_names_are_readable(parts: tuple[str, ...], name: str) -> None:
    assert made_name(*parts) == name


def test_every_name_is_harmless_and_short() -> None:
    odd = made_name("a" * 300, '%:/+,\\ \0\n*?"<>|é', "..")
    assert re.fullmatch(r"[a-zA-Z0-9_.=-]+", odd)
    assert len(odd) < 120
    assert odd != made_name("a" * 301, '%:/+,\\ \0\n*?"<>|é', "..")


def test_a_run_for_every_pair() -> None:
    both = RunsAsked(("rotation", "affine"), ("gaussian:0.1rad", "gaussian:0.2rad"), "", "both")
    with pytest.raises(InputError, match="0.1rad"):
        names(both)
    both = RunsAsked(("scaling", "affine"), ("gaussian:0.1", "gaussian:0.2"), "", "both")
    assert names(both) == [
        "both_scaling_gaussian-0.1",
        "both_scaling_gaussian-0.2",
        "both_affine_gaussian-0.1",
        "both_affine_gaussian-0.2",
    ]


def test_options_of_their_own_are_in_the_name() -> None:
    plain = RunsAsked(("rotation",), ("uniform:5deg",), "")
    own = RunsAsked(
        plain.deformations,
        plain.noises,
        "",
        train={"consistency": 10.0, "weights": "my/own.pth"},
        certify={"n": 100, "radii": ("1deg",)},
    )
    found = names(plain, own)
    assert found == [
        "rotation_uniform-5deg",
        "rotation_uniform-5deg_consistency-10_weights-own.pth_n-100",
    ]


def test_the_machine_is_not_in_the_name() -> None:
    def run(train: Values, certify: Values) -> RunsAsked:
        return RunsAsked(("rotation",), ("uniform:5deg",), "", train=train, certify=certify)

    assert names(run({"device": "cpu", "workers": 2}, {"device": "cpu"})) == [
        "rotation_uniform-5deg"
    ]
    with pytest.raises(InputError, match="as that of another run"):
        names(run({}, {}), run({"device": "cpu"}, {}))
    both = "rotation_uniform-5deg_seed-1_certify-seed-2_n-9"
    assert names(run({"seed": 1}, {"n": 9, "seed": 2})) == [both]


def test_what_reads_alike_is_told_apart() -> None:
    given = Names()
    first = given.add("a_b", ("a", "b"), made=True, where="")
    second = given.add("a_b", ("a", "B"), made=True, where="")
    third = given.add("A_b", ("A", "b"), made=True, where="")
    assert first == "a_b"
    assert len({first, second.casefold(), third.casefold()}) == 3
    with pytest.raises(InputError, match="as that of another run"):
        given.add("a_b", ("a", "B"), made=True, where="")
    with pytest.raises(InputError, match="as that of another run"):
        given.add("a_b", ("a", "c"), made=False, where="")


def test_a_name_does_not_depend_on_later_runs() -> None:
    one = RunsAsked(("affine",), ("gaussian:0.1",), "")
    other = RunsAsked(("affine",), ("gaussian:0.1 ",), "")
    assert names(one) == names(one, other)[:1]
    assert len(set(names(one, other))) == 2
