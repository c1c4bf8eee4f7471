"""Commands that are killed, or whose files fail, at any operation; and programs that must not pass.

`make soak` runs all cases, this file some of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from faults import COMMANDS
from injection import FAULTS, KILLS, Program
from subjects import Case, Subject

from commands import ENVIRONMENT, TESTS

if sys.platform != "linux":
    pytest.skip("forks processes that have imported torch", allow_module_level=True)

CASES = 90
OLD, NEW = b"old" * 1000, b"new" * 1000


def test_a_sample_of_all_faults_and_kills_loses_nothing() -> None:
    harness = [sys.executable, str(TESTS / "attacks" / "faults.py"), "--sample", str(CASES)]
    done = subprocess.run(harness, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kills, _, faults, *_ = done.stdout.splitlines()[-1].split()
    assert int(kills) + int(faults) == CASES
    assert min(int(kills), int(faults)) > CASES // 4


def test_every_command_that_writes_runs_is_examined() -> None:
    verbs = {words[0] for words, _ in COMMANDS.values()}
    assert verbs == {"certify", "train", "pack", "report", "card", "predict"}


def replace_file(
    *, flags: int = os.O_TRUNC, whole: bool = True, content: bool = True, name: bool = True
) -> None:
    """Give a file its new content, which is written whole, and content and name synced, or not."""
    number = os.open("out.partial", os.O_WRONLY | os.O_CREAT | flags)
    left = NEW
    while left:
        left = left[os.write(number, left) :]
        if not whole:
            break
    if content:
        os.fsync(number)
    os.close(number)
    os.replace("out.partial", "out")
    if name:
        folder = os.open(".", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def write_in_place() -> None:
    with open("out", "wb") as file:
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())


def remove_first() -> None:
    if os.path.exists("out"):
        os.unlink("out")
    replace_file()


def append_after_half_lines() -> None:
    path = Path("lines.jsonl")
    done = path.read_bytes().count(b"\n") if path.exists() else 0
    with path.open("ab", buffering=0) as file:
        for number in range(done, 4):
            file.write(b'{"index": %d}\n' % number)


def say_nothing() -> None:
    with contextlib.suppress(OSError):
        replace_file()


def say_no_name() -> None:
    try:
        replace_file()
    except OSError as error:
        sys.exit(f"error: {error.strerror}")


def naming(program: Program) -> Program:
    """Return the program, ending as it should where the system fails."""

    def named() -> None:
        try:
            program()
        except OSError as error:
            sys.exit(f"error: out, lines.jsonl: {error}")

    return named


CARELESS = {
    "writes in place, killed": (naming(write_in_place), "kill after", "torn: out"),
    "writes in place, disk full": (naming(write_in_place), "full disk", "torn: out"),
    "syncs no content": (naming(partial(replace_file, content=False)), "power cut", "torn: out"),
    "syncs no name": (naming(partial(replace_file, name=False)), "power cut", "lost: out"),
    "writes once": (naming(partial(replace_file, whole=False)), "short write", "torn: out"),
    "trips over leftovers": (
        naming(partial(replace_file, flags=os.O_EXCL)),
        "kill after",
        "run again, exit 1",
    ),
    "removes the old file": (naming(remove_first), "kill after", "removed: out"),
    "keeps half lines": (
        naming(append_after_half_lines),
        "kill inside",
        "run again, differs: lines.jsonl",
    ),
    "crashes": (replace_file, "EIO", "traceback"),
    "says no name": (say_no_name, "ENOSPC", "without the file's name"),
    "says nothing": (say_nothing, "EIO", "silent"),
}


def cases_of(program: Program, folder: Path, kinds: tuple[str, ...]) -> list[Case]:
    (folder / "out").write_bytes(OLD)
    subject = Subject("test", program, folder, growing=("*.jsonl",))
    return [subject.examine(place, kind) for place, kind in subject.cases() if kind in kinds]


def test_a_careful_program_passes(tmp_path: Path) -> None:
    cases = cases_of(naming(replace_file), tmp_path, (*KILLS, *FAULTS))
    assert [case.problems for case in cases if case.problems] == []
    assert {case.kind for case in cases} == {*KILLS, *FAULTS}
    operations = ["open to write", "write", "fsync", "replace", "open to read", "fsync", "exit"]
    assert [case.site.operation for case in cases if case.kind in ("kill before", "power cut")] == [
        *(name for name in operations[:4] for _ in range(2)),
        *("open to read", "fsync", "fsync", "exit"),
    ]


@pytest.mark.parametrize(("program", "kind", "problem"), CARELESS.values(), ids=CARELESS)
def test_a_careless_program_does_not_pass(
    tmp_path: Path, program: Program, kind: str, problem: str
) -> None:
    cases = cases_of(program, tmp_path, (kind,))
    problems = [problem for case in cases for problem in case.problems]
    assert any(found.startswith(problem) for found in problems), problems


def test_what_is_written_unseen_is_noticed(tmp_path: Path) -> None:
    def write() -> None:
        os.system("echo 1 > hidden")

    with pytest.raises(AssertionError, match="hidden was written by what is not seen"):
        Subject("test", write, tmp_path)
