"""Progress bars in Python: where someone watches, and only for what takes long."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from rich.console import Console

from deformrs import bars, certify_dataset
from deformrs.bars import CertificationBar, Progress, watched
from deformrs.errors import InputError
from examples import IMAGE, smoothed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal where bars appear at once."""
    out = Terminal()
    monkeypatch.setattr(bars, "watched", lambda: "terminal")
    monkeypatch.setattr(bars, "Console", lambda stderr: Console(file=out, force_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(bars, "SECONDS_BEFORE", 0.0)
    return out


def test_a_long_job_shows_a_bar_on_a_terminal_and_removes_it(terminal: Terminal) -> None:
    smoothed().certify(IMAGE, n=300)
    assert "certifying" in terminal.getvalue()
    assert "1/1" in terminal.getvalue()
    assert "samples/s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


def test_a_dataset_counts_its_images(terminal: Terminal) -> None:
    assert len(list(certify_dataset(smoothed(), [(IMAGE, 0)] * 3, n=300))) == 3
    assert "3/3" in terminal.getvalue()
    assert terminal.getvalue().count("certifying") < 50, "one bar, not one for each image"


def test_prints_meanwhile_stay_on_stdout(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    for result in certify_dataset(smoothed(), [(IMAGE, 0)] * 2, n=300):
        print(f"image {result.index}")
    assert capsys.readouterr().out == "image 0\nimage 1\n"


def test_nothing_is_shown_where_nobody_watches_or_on_request(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[int] = []
    smoothed().certify(IMAGE, n=300, progress=False)
    smoothed().certify(IMAGE, n=300, progress=Progress(sampled=sampled.append))
    assert sum(sampled) == 400
    monkeypatch.setattr(bars, "SECONDS_BEFORE", 60.0)
    smoothed().certify(IMAGE, n=300)  # over before the bar appears
    assert terminal.getvalue() == ""


def test_a_terminal_is_known_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, where in ((Terminal(), "terminal"), (io.StringIO(), None), (None, None)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert watched() == where


def test_a_notebook_shows_a_bar_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def show(data: dict[str, str], **options: bool) -> SimpleNamespace:
        shown.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=True)  # type: ignore[attr-defined]
    display.display = show  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(bars, "SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(bars, "_SECONDS_BETWEEN", 0.0)
    list(certify_dataset(smoothed(), [(IMAGE, 0)] * 2, n=300))
    assert shown[0] == "certifying"
    assert "0/2  1 images checked" in shown[1]
    assert "━" * 30 + " 2/2, 0 s left" in shown[-2]
    assert shown[-1] == "", "the bar is removed at the end"


def test_an_interrupted_run_counts_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "watched", lambda: "terminal")
    bar = CertificationBar(None, images=2, samples=100)
    seen: list[float] = []
    bar._advance = lambda done, words: seen.append(done)
    bar._began -= 10
    bar.progress.resumed(50)
    bar.progress.sampled(50)
    bar.finish()
    bar.finish()
    assert seen == [0.5, 1.0, 1.0, 2.0]


def test_progress_is_not_a_flag() -> None:
    with pytest.raises(InputError, match="must be None, False or a Progress"):
        smoothed().certify_batch(torch.rand(1, 1, 12, 12), progress=True)  # type: ignore[arg-type]
