"""Run folders: written line by line, resumed, packed, never mixed."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from deformrs import (
    Compose,
    Counts,
    Deformation,
    Gaussian,
    Independent,
    NoiseLaw,
    Region,
    Rotation,
    Scaling,
    Translation,
    Uniform,
    VectorField,
)
from deformrs.cli import commands
from deformrs.errors import InputError
from deformrs.runs import (
    CERTIFICATES,
    CONFIG,
    TIMES,
    Result,
    Run,
    load_run,
    pack_run,
    read_times,
    runs_in,
    unpack_run,
    write_atomically,
)
from deformrs.runs import folder as opening
from deformrs.runs.files import packed_name

ALPHA, METHOD = 0.001, "clopper_pearson"


def results(
    law: NoiseLaw, deformation: Deformation, size: tuple[int, int] = (28, 28)
) -> list[Result]:
    return [
        Result(
            k,
            k % 2,
            law.certify(
                Counts((0, 100), (400 - 50 * k, 600 + 50 * k)), deformation.space(size), ALPHA
            ),
        )
        for k in range(6)
    ]


def write(folder: Path, some: list[Result], law: NoiseLaw) -> None:
    with Run.open(folder, law, ALPHA, METHOD, {"seed": 0}) as run:
        for result in some:
            if result.index not in run.done:
                run.add(result)


CASES: list[tuple[Deformation, NoiseLaw]] = [
    (Rotation(), Uniform(math.pi)),
    (Translation(), Gaussian((0.2, 0.4))),
    (VectorField(), Gaussian(0.2)),
    (
        Compose(Rotation(), Scaling(), Translation()),
        Independent(Uniform(1.0), Uniform(0.3), Gaussian(0.2)),
    ),
]


@pytest.mark.parametrize(("deformation", "law"), CASES)
def test_a_run_comes_back_as_it_was(
    tmp_path: Path, deformation: Deformation, law: NoiseLaw
) -> None:
    some = results(law, deformation)
    write(tmp_path, some, law)
    assert load_run(tmp_path) == some
    again = load_run(tmp_path, alpha=0.01, method="anytime")
    assert [r.certificate.alpha for r in again] == [0.01] * 6
    assert [r.certificate.method for r in again] == ["anytime"] * 6
    assert again[5].certificate == law.certify(
        some[5].certificate.counts, deformation.space((28, 28)), 0.01, "anytime"
    )


@pytest.mark.parametrize("stop", [0, 1, 40, 100])
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path: Path, stop: int) -> None:
    """Killed after three results and `stop` bytes of the fourth."""
    law, some = Uniform(1.0), results(Uniform(1.0), Rotation())
    write(tmp_path / "whole", some, law)
    write(tmp_path / "cut", some[:3], law)
    whole = (tmp_path / "whole" / CERTIFICATES).read_bytes()
    torn = tmp_path / "cut" / CERTIFICATES
    torn.write_bytes(whole[: len(torn.read_bytes()) + stop])
    assert load_run(tmp_path / "cut") == some[:3]
    write(tmp_path / "cut", some, law)
    assert torn.read_bytes() == whole


def test_guarantee_add_has_the_result_on_disk_when_it_returns(tmp_path: Path) -> None:
    some = results(Uniform(1.0), Rotation())
    with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {}) as run:
        for count, result in enumerate(some, start=1):
            run.add(result)
            assert load_run(tmp_path) == some[:count]


def test_images_of_different_sizes_keep_their_own(tmp_path: Path) -> None:
    """Eight pixels are another length on a smaller image."""
    law = Gaussian(0.3)
    big, small = (results(law, Translation(), size)[5] for size in ((64, 64), (16, 16)))
    write(tmp_path, [big, Result(6, 1, small.certificate)], law)
    region = Region.parse("shift<=5px")
    assert [r.certificate.covers_region(region) for r in load_run(tmp_path)] == [True, False]


def test_a_run_is_of_one_law_one_alpha_and_one_method(tmp_path: Path) -> None:
    counts, space = Counts((0, 100), (10, 990)), Rotation().space((28, 28))
    with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {}) as run:
        for other in (
            Uniform(0.1).certify(counts, space, ALPHA),
            Uniform(1.0).certify(counts, space, 0.2),
            Uniform(1.0).certify(counts, space, ALPHA, "anytime"),
        ):
            with pytest.raises(InputError, match="image 0 is made with other settings"):
                run.add(Result(0, 1, other))
    assert load_run(tmp_path) == []


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    write(tmp_path, results(Uniform(1.0), Rotation()), Uniform(1.0))
    with pytest.raises(InputError, match="seed: 0 there, 1 here.*choose another folder"):
        Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {"seed": 1})
    with pytest.raises(InputError, match="alpha: 0.001 there, 0.01 here"):
        Run.open(tmp_path, Uniform(1.0), 0.01, METHOD, {"seed": 0})
    assert len(load_run(tmp_path)) == 6


def test_a_run_of_another_generator_is_read_but_not_continued(tmp_path: Path) -> None:
    """Runs of 0.1.0 name no generator: on the CPU their noise was torch's."""
    law = Uniform(0.5)
    some = results(law, Rotation())
    write(tmp_path, some[:3], law)
    with pytest.raises(InputError, match="generator 'torch'.* 'philox'.*certify into another"):
        Run.check(tmp_path, law, ALPHA, METHOD, {"seed": 0, "generator": "philox"})
    assert load_run(tmp_path) == some[:3]
    write(tmp_path, some, law)  # on a GPU, where it is torch's still
    assert load_run(tmp_path) == some


def test_the_requested_options_do_not_bind_a_run(tmp_path: Path) -> None:
    some = results(Uniform(1.0), Rotation())
    first: dict[str, object] = {"seed": 0, "options": {"noise": "uniform:1rad"}}
    with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, first) as run:  # type: ignore[arg-type]
        run.add(some[0])
    second: dict[str, object] = {"seed": 0, "options": {"noise": "uniform:57.3deg"}}
    with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, second) as run:  # type: ignore[arg-type]
        assert run.config["options"] == {"noise": "uniform:1rad"}
        run.add(some[1])
    assert load_run(tmp_path) == some[:2]


def test_the_configuration_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text('{"architectures": []}')
    with pytest.raises(InputError, match="config.json is damaged"):
        Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {})
    assert (tmp_path / CONFIG).read_text() == '{"architectures": []}'
    assert not (tmp_path / CERTIFICATES).exists()


def test_a_difference_is_shown_by_its_full_name(tmp_path: Path) -> None:
    with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {"data": {"number": 3}}) as run:
        run.add(results(Uniform(1.0), Rotation())[0])
    with pytest.raises(InputError, match="another one .data.number: 3 there, 4 here.;"):
        Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {"data": {"number": 4}})


def test_a_run_without_results_binds_nothing(tmp_path: Path) -> None:
    for seed in (0, 1):
        with Run.open(tmp_path, Uniform(1.0), ALPHA, METHOD, {"seed": seed}) as run:
            assert run.config["seed"] == seed
    assert json.loads((tmp_path / CONFIG).read_text())["seed"] == 1


def test_counts_are_never_read_under_another_law(tmp_path: Path) -> None:
    """A configuration that was exchanged, by hand or by a crash, is noticed."""
    write(tmp_path, results(Uniform(0.1), Rotation()), Uniform(0.1))
    config = json.loads((tmp_path / CONFIG).read_text())
    config["noise"]["scale"] = 1.5
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(InputError, match="line 1.*of another configuration"):
        load_run(tmp_path)
    (tmp_path / CONFIG).unlink()
    before = (tmp_path / CERTIFICATES).read_bytes()
    with pytest.raises(InputError, match="without its config.json"):
        Run.open(tmp_path, Uniform(1.5), ALPHA, METHOD, {})
    assert (tmp_path / CERTIFICATES).read_bytes() == before, "nothing is thrown away"


CHANGES = [
    ('"index": 0', '"index": 7'),
    ('"label": 0', '"label": 1'),
    ("600", "990"),
    ('"rotation"', '"scaling"'),
    ("[28, 28]", "[280, 280]"),
    ('"classes": 2', '"classes": 10000000000'),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_changed_line_is_refused(tmp_path: Path, old: str, new: str) -> None:
    write(tmp_path, results(Uniform(1.0), Rotation()), Uniform(1.0))
    path = tmp_path / CERTIFICATES
    text = path.read_text()
    first, rest = text.split("\n", 1)
    changed = first.replace(old, new)
    assert changed != first
    path.write_text(changed + "\n" + rest)
    with pytest.raises(InputError, match="line 1: .*changed"):
        load_run(tmp_path)


def begin(folder: Path, seed: int, barrier: threading.Barrier, said: list[object]) -> None:
    barrier.wait()
    try:
        with Run.open(folder, Uniform(1.0), ALPHA, METHOD, {"seed": seed}) as run:
            run.add(results(Uniform(1.0), Rotation())[0])
            said.append(run.config["seed"])
    except InputError as error:
        said.append(error)


def test_two_that_begin_at_once_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    for trial in range(20):
        said: list[object] = []
        barrier = threading.Barrier(2)
        folder = tmp_path / str(trial)
        both = [
            threading.Thread(target=begin, args=(folder, seed, barrier, said)) for seed in (0, 1)
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        (winner,) = [seed for seed in said if isinstance(seed, int)]
        assert json.loads((folder / CONFIG).read_text())["seed"] == winner
        (loser,) = [error for error in said if isinstance(error, InputError)]
        assert "another" in str(loser)


def test_numbers_of_numpy_are_written_too(tmp_path: Path) -> None:
    law = Uniform(1.0)
    (first, *_) = results(law, Rotation())
    write(tmp_path, [Result(np.int64(0), np.int64(1), first.certificate)], law)  # type: ignore[arg-type]
    assert load_run(tmp_path) == [Result(0, 1, first.certificate)]


GOOD = (
    """{"index": 0, "label": 1, "selection": [0, 9], "estimation": [1, 9], "space": 0, "run": ""}"""
)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "garbage",
        "[]",
        "{}",
        "\x00",
        GOOD,
        GOOD.replace("[0, 9]", "[0, -9]"),
        GOOD.replace("1", "'"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, line: str) -> None:
    law = Uniform(1.0)
    write(tmp_path, results(law, Rotation())[:2], law)
    with (tmp_path / CERTIFICATES).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"certificates.jsonl is damaged \(line 3"):
        load_run(tmp_path)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    law = Uniform(1.0)
    write(tmp_path, results(law, Rotation())[:2], law)
    with (tmp_path / CERTIFICATES).open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    with pytest.raises(InputError, match=r"certificates.jsonl is damaged \(line 3"):
        load_run(tmp_path)


def test_a_image_has_one_line(tmp_path: Path) -> None:
    law = Uniform(1.0)
    write(tmp_path, results(law, Rotation())[:2], law)
    path = tmp_path / CERTIFICATES
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(InputError, match="line 3: image 0 again"):
        load_run(tmp_path)


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"noise": {}}', "\x00"])
def test_a_damaged_configuration_is_named(tmp_path: Path, config: str) -> None:
    (tmp_path / CONFIG).write_text(config)
    with pytest.raises(InputError, match="config.json is damaged"):
        load_run(tmp_path)


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must hold a config.json"):
        load_run(tmp_path / "nowhere")


def test_guarantee_write_atomically_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.md"
    write_atomically(path, "old")

    def pull_the_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("os.fsync", pull_the_disk)
    with pytest.raises(OSError, match="no space left.*table.md"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


LAW = Uniform(0.5)


def written(folder: Path, count: int = 40) -> Path:
    space = Rotation().space((28, 28))
    with Run.open(folder, LAW, 0.001, "clopper_pearson", {"seed": 0}) as run:
        for k in set(range(count)) - run.done:
            counts = Counts((0, 100), (10 * k, 1000 - 10 * k))
            run.add(Result(k, 1, LAW.certify(counts, space, 0.001)), seconds=0.25)
    return folder


def test_guarantee_pack_run_keeps_every_byte(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    lines, times = (folder / CERTIFICATES).read_bytes(), (folder / TIMES).read_bytes()
    results, seconds = load_run(folder), read_times(folder)
    size = pack_run(folder)
    assert size.before == len(lines) + len(times)
    assert size.after == sum(packed_name(folder / p).stat().st_size for p in (CERTIFICATES, TIMES))
    assert size.after < size.before / 2
    assert not (folder / CERTIFICATES).exists()
    assert load_run(folder) == results
    assert read_times(folder) == seconds
    assert len(seconds) == 40
    assert pack_run(folder).before == size.after  # once more changes nothing
    assert unpack_run(folder).after == size.before
    assert (folder / CERTIFICATES).read_bytes() == lines
    assert (folder / TIMES).read_bytes() == times
    assert sorted(path.name for path in folder.iterdir()) == [
        CERTIFICATES,
        "config.json",
        TIMES,
    ]


def test_a_packed_run_is_not_written_to(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    pack_run(folder)
    with pytest.raises(InputError, match=r"run is packed; it can only be read: .*pack --undo"):
        written(folder)
    assert not (folder / CERTIFICATES).exists()
    unpack_run(folder)
    assert len(load_run(written(folder))) == 40


def test_interrupted_packing_is_resumed(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    lines = (folder / CERTIFICATES).read_bytes()
    pack_run(folder)
    (folder / CERTIFICATES).write_bytes(lines)  # both are there
    assert len(load_run(folder)) == 40
    with pytest.raises(InputError, match="is packed"):
        written(folder, count=50)
    pack_run(folder)
    assert not (folder / CERTIFICATES).exists()
    (folder / CERTIFICATES).write_bytes(lines)
    unpack_run(folder)
    assert not packed_name(folder / CERTIFICATES).exists()
    assert (folder / CERTIFICATES).read_bytes() == lines


@pytest.mark.parametrize("kept", [0, 5])
def test_records_that_differ_from_the_packed_ones_are_refused(tmp_path: Path, kept: int) -> None:
    folder = written(tmp_path / "run")
    lines = (folder / CERTIFICATES).read_bytes().splitlines(keepends=True)
    pack_run(folder)
    packed = packed_name(folder / CERTIFICATES).read_bytes()
    (folder / CERTIFICATES).write_bytes(b"".join(lines[:kept]))
    for attempt in (load_run, pack_run, unpack_run):
        with pytest.raises(InputError, match=r"is different from certificates\.jsonl\.xz"):
            attempt(folder)
    with pytest.raises(InputError, match="is packed"):
        Run.open(folder, LAW, 0.001, "clopper_pearson", {"seed": 1})
    assert packed_name(folder / CERTIFICATES).read_bytes() == packed


def test_a_run_that_is_packed_while_it_is_opened_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "run")
    monkeypatch.setattr(opening, "lock", lambda *_: pack_run(folder))
    with pytest.raises(InputError, match="is packed"):
        written(folder, count=50)
    assert len(load_run(folder)) == 40


def test_packed_runs_are_found_side_by_side(tmp_path: Path) -> None:
    pack_run(written(tmp_path / "a"))
    written(tmp_path / "b")
    (tmp_path / "c").mkdir()
    assert runs_in(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert runs_in(tmp_path / "a") == [tmp_path / "a"]


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must hold a config\.json"):
        pack_run(tmp_path)
    folder = written(tmp_path / "run")
    with (folder / CERTIFICATES).open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="being written by another process"):
            pack_run(folder)
    with pytest.raises(InputError, match="is empty; it has nothing to pack"):
        pack_run(written(tmp_path / "none", count=0))
    damaged = (folder / CERTIFICATES).read_text().replace('"label": 1', '"label": 0', 1)
    (folder / CERTIFICATES).write_text(damaged)
    with pytest.raises(InputError, match="line 1"):
        pack_run(folder)
    assert (folder / CERTIFICATES).exists()


def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    pack_run(folder)
    path = packed_name(folder / CERTIFICATES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"certificates\.jsonl\.xz is damaged"):
        load_run(folder)


def test_the_verb(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name)
    done = CliRunner().invoke(commands, ["pack", str(tmp_path)], catch_exceptions=False)
    assert [line.partition(": ")[0] for line in done.output.splitlines()] == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    ]
    assert packed_name(tmp_path / "b" / CERTIFICATES).exists()
    CliRunner().invoke(commands, ["pack", "--undo", str(tmp_path / "b")], catch_exceptions=False)
    assert (tmp_path / "b" / CERTIFICATES).exists()
