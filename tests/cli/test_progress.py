"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import deformrs.cli.progress as progress
from deformrs.cli.progress import Downloads, step


def test_one_plain_line_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with step(Console(file=out), "certifying", 10) as advance:
        for done in range(1, 11):
            advance(done, "[93.1 %] up to 10deg")
    assert out.getvalue() == "certifying: 10/10 [93.1 %] up to 10deg\n"


def test_a_long_step_speaks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1.0)
    out = io.StringIO()
    with step(Console(file=out), "certifying", 3) as advance:
        advance(0.5, "begun")
        advance(1.5, "half way")
    first, second, last = out.getvalue().splitlines()
    assert first == "certifying: 0/3 begun"
    assert re.fullmatch(r"certifying: 1/3 half way, \d+ s left", second)
    assert last == "certifying: 1/3 half way"


def test_what_an_earlier_go_has_done_says_nothing_about_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("deformrs.cli.progress.time.monotonic", lambda: now)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 1.0)
    out = io.StringIO()
    with step(Console(file=out), "training", 60) as advance:
        for done in (50, 51, 52):  # ten seconds each
            advance(done, "")
            now += 10
    assert "training: 52/60, 80 s left" in out.getvalue()


@pytest.mark.parametrize("width", [40, 120])
def test_bar_and_words_on_a_terminal(width: int) -> None:
    out = io.StringIO()
    with step(Console(file=out, force_terminal=True, width=width), "certifying", 10) as advance:
        advance(4, "93.1 % up to 10deg")
    assert "4/10" in out.getvalue()
    assert "93.1 % up to 10deg" in out.getvalue()


def test_an_error_in_a_step_is_not_swallowed() -> None:
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal)
        with pytest.raises(KeyError), step(console, "certifying", 10):
            raise KeyError("boom")


def test_downloads_are_shown_file_by_file() -> None:
    out = io.StringIO()
    with Downloads(Console(file=out)) as fetched:
        fetched("a.gz", 1_000_000, 10_000_000)
        fetched("a.gz", 10_000_000, 10_000_000)
        fetched("b.gz", 500_000, None)
    assert out.getvalue() == "downloading a.gz, MB: 10/10\ndownloading b.gz, MB: 0/1\n"
