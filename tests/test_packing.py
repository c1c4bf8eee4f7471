"""Packed runs: the same lines, read and not written."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from click.testing import CliRunner

from deformrs import Counts, Rotation, Uniform
from deformrs.cli import commands
from deformrs.errors import InputError
from deformrs.runs import (
    CERTIFICATES,
    TIMES,
    Result,
    Run,
    load_run,
    pack_run,
    read_times,
    runs_in,
    unpack_run,
)
from deformrs.runs import folder as opening
from deformrs.runs.files import packed_name

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


def test_packing_that_was_stopped_is_taken_up(tmp_path: Path) -> None:
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
def test_other_lines_beside_the_packed_ones_are_never_taken_for_them(
    tmp_path: Path, kept: int
) -> None:
    folder = written(tmp_path / "run")
    lines = (folder / CERTIFICATES).read_bytes().splitlines(keepends=True)
    pack_run(folder)
    packed = packed_name(folder / CERTIFICATES).read_bytes()
    (folder / CERTIFICATES).write_bytes(b"".join(lines[:kept]))
    for attempt in (load_run, pack_run, unpack_run):
        with pytest.raises(InputError, match=r"different from certificates\.jsonl\.xz in"):
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
