"""Names that a terminal, a spreadsheet, a shell or a document would act upon."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shlex
import subprocess
import warnings
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import deformrs.cli
from commands import deformrs as run_command
from commands import fails
from deformrs.bars import terminal_bar
from deformrs.cli.terminal import echo, print_plain
from deformrs.errors import InputError, ScarcityWarning, printable, quoted
from deformrs.report.document import write_report
from deformrs.report.formats import Cell, Table, escape_markdown, to_csv, to_latex, to_markdown
from made_runs import Entry, Page, stored

TERMINAL = "a\x1b[2J\x1b]0;owned\x07\u202egnp\u2066\x9b31m\r\b\x7f"
"""Clears the screen, sets the title of the window, turns the direction of the text."""
SHELL = "$(touch executed) `touch executed`; touch executed & 'a\" -x \\ !! ~"


def is_safe(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_guarantee_a_printed_line_is_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo(TERMINAL + "\nerror: not one of ours", "ä 中 \U0001f600", err=True)
    print_plain(Console(), TERMINAL + "\nnote: not one of ours")
    for text in capsys.readouterr():
        assert is_safe(text)
        assert "\\x1b[2J" in text
        assert "\nerror" not in text
        assert "\nnote" not in text


def test_the_command_line_prints_in_no_other_way() -> None:
    """What is printed past `echo` and `print_plain` is not escaped."""
    folder = Path(deformrs.cli.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for call in (c for c in ast.walk(ast.parse(path.read_text())) if isinstance(c, ast.Call)):
            name = ast.unparse(call.func)
            if name in ("print", "click.echo", "click.secho") or name.endswith(
                (".write", "console.print", "console.log")
            ):
                found.add((path.name, ast.unparse(call)[:40]))
    allowed = {
        ("terminal.py", "print(printable(line), file=sys.stderr i"),
        ("terminal.py", "console.print(printable(line), highlight"),
        ("__init__.py", "print(error.format_message())"),  # help of our own
        ("bench.py", "console.print(_table(rows, here))"),  # names of our own
    }
    assert found == allowed


@pytest.fixture
def photos(network: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two images with hostile names, and a network's hostile names of their classes."""
    monkeypatch.chdir(network.parent)
    folder = Path("photos")
    folder.mkdir()
    rows = [["file", "label"]]
    for index, name in enumerate((f"{TERMINAL}.png", "=cmd|' calc'!A0\n.png")):
        Image.new("L", (28, 28), 90 * index).save(folder / name)
        rows.append([name, str(index)])
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    names = [f"{TERMINAL}{k}" for k in range(9)] + ["+1+cmd|' /C calc'!A0"]
    Path("names.json").write_text(json.dumps(names))
    return folder


OPTIONS = [
    *("--model", "network", "--deformation", "rotation", "--noise", "uniform:30deg"),
    *("--n", "20", "--device", "cpu", "--class-names", "names.json"),
]


def test_hostile_names_reach_no_terminal(photos: Path, no_figures: None) -> None:
    out = f"runs {TERMINAL} {SHELL}"
    certified = run_command("certify", "--data", photos, *OPTIONS, "--out", out)
    predicted = run_command("predict", *sorted(photos.glob("*.png")), *OPTIONS)
    reported = run_command("report", out)
    for done in (certified, predicted, reported):
        assert is_safe(done.stdout + done.stderr), ascii(done.stdout + done.stderr)
    assert len(predicted.stdout.splitlines()) == 2
    assert "\\x1b" in certified.stdout
    hint = certified.stdout.splitlines()[-1].removeprefix("next: ")
    assert hint.startswith("deformrs report $'runs a\\x1b")
    for table in Path(out, "report/tables").glob("*.csv"):
        for row in csv.reader(io.StringIO(table.read_text(encoding="utf-8"))):
            for cell in row:
                assert cell.isprintable()
                assert not re.match(r"[=+@-](?![0-9.]+$)", cell), cell


def test_json_of_a_prediction_is_one_line_that_gives_the_name_back(photos: Path) -> None:
    files = sorted(photos.glob("*.png"))
    done = run_command("predict", *files, *OPTIONS, "--json")
    assert is_safe(done.stdout)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(file) for file in files]


@pytest.mark.parametrize(
    "arguments",
    [
        [TERMINAL],
        ["certify", f"--{TERMINAL}"],
        ["report", TERMINAL],
        ["predict", f"{TERMINAL}.png", *OPTIONS[:-2]],
        ["certify", *OPTIONS[:-2], "--data", TERMINAL, "--out", "out"],
        ["certify", *OPTIONS[:-2], "--data", "digits", "--out", "out", "--radii", TERMINAL],
        ["certify", "--model", f"{TERMINAL}.py:build", *OPTIONS[2:-2], "--data", "digits"],
        ["sweep", f"{TERMINAL}.toml"],
    ],
)
def test_errors_escape_what_they_quote(photos: Path, arguments: list[str]) -> None:
    code = 2 if len(arguments) == 1 or arguments[1].startswith("--\x61") else 1
    assert is_safe(fails(*arguments, code=code))


def test_texts_of_a_models_errors_and_warnings_are_escaped(photos: Path) -> None:
    Path("net.py").write_text(
        "import torch, warnings\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, images):\n"
        f"        warnings.warn({TERMINAL!r})\n"
        f"        raise IndexError({TERMINAL!r})\n"
        "build = Net\n"
    )
    done = run_command(
        *("certify", "--data", "digits", "--out", "out", "--model", "net.py:build"),
        *OPTIONS[2:-2],
        code=1,
    )
    assert is_safe(done.stderr)
    assert "UserWarning: a\\x1b" in done.stderr
    assert "an error (IndexError: a\\x1b" in done.stderr


def test_our_own_warnings_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.showwarning = deformrs.cli._show_warning
        warnings.simplefilter("always")
        warnings.warn(TERMINAL + "\nerror: not one of ours", ScarcityWarning, stacklevel=1)
    said = capsys.readouterr().err
    assert is_safe(said)
    assert said.count("\n") == 1


def test_the_words_of_a_progress_bar_are_escaped() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    with terminal_bar(console, "certifying", 2) as advance:
        advance(1, TERMINAL)
    assert "\u202e" not in screen.getvalue()
    assert "owned\\x07" in screen.getvalue()


NAMES = [
    *("run", "my run", "-rf", "--out", SHELL, TERMINAL, "a\nb", "é", "\udcff", "$'x'", "", "*"),
    *("a'\x01\\'b", "~", "a=b", "#", "{a,b}"),
]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell is needed")
def test_guarantee_quoted_names_are_words_of_a_shell(tmp_path: Path) -> None:
    """bash gives every name back and runs nothing."""
    script = "printf '%s\\0' " + " ".join(map(quoted, NAMES))
    assert script.encode("ascii", "replace").decode().isprintable()
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, cwd=tmp_path, check=True, timeout=60
    )
    words = [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]
    assert words == [f"./{name}" if name.startswith("-") else name for name in NAMES]
    assert not any(tmp_path.iterdir())


def test_commands_in_errors_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    below = Path(SHELL, "deeper")
    stored(below / "run", [Entry(0, 0, 990)], on_disk=True)
    line = fails("report", SHELL)
    assert shlex.split(line.rpartition(": give ")[2]) == [str(below)]


FORMULAS = [
    *("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '"=1', "'=1"),
    *("  =1", "＝1", "－1+2", "-", "=", "\x00=1"),
]


@pytest.mark.parametrize("text", FORMULAS)
def test_guarantee_no_text_in_a_csv_file_is_a_formula(text: str) -> None:
    """Also as the name of a column, and where the cell before it would be joined with it."""
    rows = list(csv.reader(io.StringIO(to_csv(["a", text], [[text, 1], [1, text]]))))
    assert {len(row) for row in rows} == {2}
    for cell in (rows[0][1], rows[1][0], rows[2][1]):
        assert cell[0] in "'\\"
        assert cell.lstrip("'") == printable(text).lstrip("'")


@pytest.mark.parametrize("number", [-1, -0.5, 1e-9, -1e30, 0])
def test_numbers_in_a_csv_file_stay_numbers(number: float) -> None:
    written = to_csv(["a"], [[number], [str(number)]]).splitlines()
    assert [float(line) for line in written[1:]] == [number, number]


def test_a_table_has_the_same_cells_whatever_they_say() -> None:
    hostile = ["a|b", "[2cm]", "*", "\\\\", "a & b", "\nb", "<script>", "&lt;", "~~x~~", "_x_", "`"]
    table = Table("# t", "lr", ("x", "y"), tuple((Cell(text), Cell("1")) for text in hostile))
    lines = to_markdown(table).splitlines()
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert escape_markdown("# heading").startswith("\\#")
    for text in ("<b>", "&amp;", "~~x~~", "_x_", "[a](b)"):
        assert re.search(r"(?<!\\)[<>&~_\[\]]", escape_markdown(text)) is None
    assert escape_markdown("a_b-1.5 (c)") == "a_b-1.5 (c)"
    for line in to_latex(table, "t").splitlines():
        assert not line.startswith(("[", "*"))


def test_titles_and_notes_end_no_script(tmp_path: Path, no_figures: None) -> None:
    evil = "</script><script>alert(1)</script></title><!--"
    run = stored(tmp_path / "run", [Entry(0, 0, 990, source=evil)], names=[evil], data=evil)
    page = write_report([run], tmp_path / "out", title=evil, note=evil)["report.html"]
    found = Page(page.read_text(encoding="utf-8"))
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert evil in found.shown


def test_errors_in_python_are_one_line_too() -> None:
    line = str(InputError(TERMINAL, f"{TERMINAL}\nb", TERMINAL, TERMINAL))
    assert line.isprintable()
