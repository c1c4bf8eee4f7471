"""Writing into folders that others prepared: links are not followed, and no file is torn."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

import deformrs
from commands import ENVIRONMENT, run_inside
from deformrs import Uniform
from deformrs.data.preparation import Preparation
from deformrs.errors import InputError
from deformrs.models import SmallCNN, save_model
from deformrs.report.curves import save_figure
from deformrs.runs import CERTIFICATES, CONFIG, TIMES, Run, pack_run, unpack_run, write_atomically
from deformrs.runs import files as writing
from deformrs.runs.files import (
    append,
    make_folder,
    open_for_appending,
    replacement,
)
from deformrs.runs.folder import UNFINISHED
from deformrs.runs.tally import PARTIAL, remove_tally
from deformrs.training.checkpoints import Checkpoints, Snapshot
from deformrs.training.output import CHECKPOINTS, EPOCHS, TrainingFolder
from made_runs import ALPHA, METHOD, stored

LAW = Uniform(1.0)
SECRET = "what only its owner may change"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the folder that is written to."""
    path = tmp_path / "victim"
    path.write_text(SECRET)
    return path


def plant(folder: Path, victim: Path, names: list[str]) -> None:
    """Link every name, and the temporary names that were once made of them, to the victim."""
    for name in names:
        for link in (folder / name, folder / f"{name}.partial"):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(victim)


def begin(folder: Path) -> Run:
    return Run.open(folder, LAW, ALPHA, METHOD, {"seed": 0})


def checkpoint(folder: Path) -> None:
    weights = {"w": torch.ones(2)}
    Checkpoints(folder).write(Snapshot(1, weights, {}, (0.0, 0.0), [], None))


WRITERS: dict[str, tuple[list[str], Callable[[Path], object]]] = {
    "text": (["a"], lambda folder: write_atomically(folder / "a", "new")),
    "figure": (["a.png"], lambda folder: save_figure(Figure(), folder / "a.png")),
    "gallery": (
        ["a.svg"],
        lambda folder: run_inside(
            "gallery", "--kind", "fields", "--data", "digits", "--out", folder / "a.svg"
        ),
    ),
    "model": (
        ["model.json", "model.safetensors"],
        lambda folder: save_model(folder, SmallCNN(width=2), Preparation(channels=1)),
    ),
    "checkpoint": (["state.json", "last-1.safetensors"], checkpoint),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_planted_link_is_replaced_and_not_followed(
    kind: str, tmp_path: Path, victim: Path
) -> None:
    names, write = WRITERS[kind]
    plant(tmp_path / "in", victim, names)
    write(tmp_path / "in")
    assert victim.read_text() == SECRET
    for name in names:
        assert (tmp_path / "in" / name).is_file()
        assert not (tmp_path / "in" / name).is_symlink()


def test_a_run_is_not_begun_over_a_linked_configuration(tmp_path: Path, victim: Path) -> None:
    victim.write_text('{"noise": 0, "alpha": 0, "method": 0}')
    before = victim.read_text()
    plant(tmp_path / "in", victim, [CONFIG])
    (tmp_path / "in" / CERTIFICATES).touch()
    with pytest.raises(InputError, match=r"config\.json is a link"):
        begin(tmp_path / "in")
    assert victim.read_text() == before


def test_a_received_run_is_reported_and_packed_without_following_its_links(
    tmp_path: Path, victim: Path
) -> None:
    run = tmp_path / "run"
    stored(run, on_disk=True)
    arguments = ("report", run, "--no-images", "--export", run / "log.tsv")
    run_inside(*arguments)
    before = {path: path.read_bytes() for path in (run / "report").rglob("*.*")}
    names = [str(path.relative_to(run)) for path in before] + ["log.tsv"]
    plant(run, victim, [*names, f"{CERTIFICATES}.xz.partial", PARTIAL])
    run_inside(*arguments)
    pack_run(run)
    plant(run, victim, [f"{CERTIFICATES}.partial"])
    unpack_run(run)
    remove_tally(run)
    assert victim.read_text() == SECRET
    for path, content in before.items():
        assert not path.is_symlink()
        assert path.read_bytes() == content


@pytest.mark.parametrize("inner", ["report", "report/tables", "report/figures"])
def test_a_report_does_not_leave_a_received_run_by_a_linked_folder(
    tmp_path: Path, inner: str
) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    stored(run, on_disk=True)
    elsewhere.mkdir()
    (run / inner).parent.mkdir(exist_ok=True)
    (run / inner).symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{inner} is a link; it is not followed"):
        run_inside("report", run, "--no-images")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.usefixtures("no_figures")
def test_a_linked_folder_that_the_user_names_is_used(tmp_path: Path) -> None:
    stored(tmp_path / "run", on_disk=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    run_inside("report", tmp_path / "run", "--no-images", "--out", tmp_path / "out")
    assert (tmp_path / "disk" / "report.html").is_file()
    (tmp_path / "linked").symlink_to(tmp_path / "disk")
    begin(tmp_path / "linked").__exit__()
    assert (tmp_path / "disk" / CONFIG).is_file()


def test_a_training_does_not_leave_its_folder_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.safetensors").touch()  # checkpoints remove older ones
    folder = make_folder(tmp_path / "training")
    (folder / CHECKPOINTS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="checkpoints is a link"):
        TrainingFolder.open(folder, {})


@pytest.mark.parametrize("name", [CERTIFICATES, TIMES, UNFINISHED, EPOCHS])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_files_that_grow_are_regular_files(
    tmp_path: Path, victim: Path, name: str, kind: str
) -> None:
    folder = make_folder(tmp_path / "run")
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to(victim if kind == "link" else tmp_path / "new")
    if name == UNFINISHED:
        stored(folder, on_disk=True)
        with (folder / CERTIFICATES).open("a") as results:
            results.write('{"index": 40, ')
    with pytest.raises((InputError, OSError), match=name):
        TrainingFolder.open(folder, {}) if name == EPOCHS else stored(folder, on_disk=True)
    assert victim.read_text() == SECRET
    assert not (tmp_path / "new").exists()


def test_an_open_pipe_is_no_file_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(InputError, match="a device or a pipe"):
            open_for_appending(tmp_path / "log")
    finally:
        os.close(reader)


def test_a_guessed_temporary_name_is_not_written_through(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / ".deformrs-guessed.partial").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a", "new")
    assert victim.read_text() == SECRET


def test_guarantee_replacement_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with replacement(tmp_path / "a") as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_leftovers_of_killed_processes_are_removed_but_not_files_being_written(
    tmp_path: Path,
) -> None:
    killed = [".deformrs-1.partial", ".deformrs-2.partial"]
    for name in killed:
        (tmp_path / name).write_text("half")
    (tmp_path / ".deformrs-3.partial").symlink_to(tmp_path)
    with replacement(tmp_path / "a") as file:
        file.write(b"new")
        begin(tmp_path).__exit__()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {
        *("a", CONFIG, CERTIFICATES, ".deformrs-3.partial")
    }


def test_a_file_taken_for_a_leftover_before_it_is_locked_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, first = writing._locked, [True]

    def overtaken(file: object, *, wait: bool = False) -> bool:
        if wait and first:
            first.pop()
            writing._remove_leftovers(tmp_path)
        return locked(file, wait=wait)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "_locked", overtaken)
    write_atomically(tmp_path / "a", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "")
        open_for_appending(tmp_path / "b").close()
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o640]


def test_guarantee_make_folder_has_every_new_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(writing, "sync_folder", synced.append)
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3


def test_figures_and_logs_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    save_figure(Figure(), tmp_path / "a.svg")
    assert synced[0].endswith(".partial")
    assert synced[1:] == [str(tmp_path)]
    with open_for_appending(tmp_path / "log") as file:
        append(file, "line\n")
        assert synced[2:] == [str(tmp_path / "log")]
        assert (tmp_path / "log").read_text() == "line\n"


WRITER = """
import sys
from pathlib import Path
from deformrs.runs import write_atomically
for _ in range(80):
    write_atomically(Path(sys.argv[1]), sys.argv[2] * 300_000)
"""


def test_two_writers_of_one_file_never_tear_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter], env=ENVIRONMENT)
        for letter in "ab"
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            content = path.read_bytes()
            assert content in (b"a" * 300_000, b"b" * 300_000)
            seen.add(content[:1])
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen == {b"a", b"b"}
    assert list(tmp_path.iterdir()) == [path]


REPORTS = """
import os, sys
from pathlib import Path
from deformrs.report.document import write_report
from deformrs.runs import read_run
runs = [read_run(Path(sys.argv[1]))]
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        write_report(runs, Path(sys.argv[2]))
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_three_reports_at_once_into_one_folder(tmp_path: Path) -> None:
    stored(tmp_path / "run", on_disk=True)
    arguments = [sys.executable, "-c", REPORTS, str(tmp_path / "run"), str(tmp_path / "out")]
    subprocess.run(arguments, env=ENVIRONMENT, check=True)
    made = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    run_inside("report", tmp_path / "run", "--no-images", "--out", tmp_path / "alone")
    alone = {str(path.relative_to(tmp_path / "alone")) for path in (tmp_path / "alone").rglob("*")}
    assert made == alone
    for name in made - {"tables", "figures"}:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


WRITING = {"write_text", "write_bytes", "mkdir", "makedirs", "touch", "rename", "symlink_to"}
WRITING |= {"save_file", "imsave", "tofile", "copyfile", "copytree", "extractall"}


def test_everything_is_written_by_one_module() -> None:
    package = Path(deformrs.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path == package / "runs" / "files.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [
                a.value
                for a in [*node.args, *(k.value for k in node.keywords)]
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            modes = [
                text for text in texts if set(text) <= set("rwxabt+") and set(text) & set("wxa+")
            ]
            assert name not in WRITING, f"{path}:{node.lineno}: {name}"
            assert not (name == "open" and modes), f"{path}:{node.lineno}: open {modes}"
