"""Words that fit, whatever classes and files are called."""

from __future__ import annotations

import pytest

from deformrs.report.gallery.lettering import class_label, shorten, width_in, wrap

STAFF = "American Staffordshire terrier, Staffordshire terrier, American pit bull terrier"


@pytest.mark.parametrize("room", [0.3, 0.9, 1.4, 2.5, 20.0])
@pytest.mark.parametrize("text", [STAFF, "W" * 300, "tench", "a, b", ",,, ,", "$x^2$ 50 % \\frac"])
def test_shortened_text_fits(text: str, room: float) -> None:
    short = shorten(text, room, 7)
    assert width_in(short, 7) <= room
    assert short == text or short.endswith("…")
    assert text.startswith(short.removesuffix("…"))


def test_lists_of_names_lose_whole_names_first() -> None:
    assert shorten(STAFF, 2.0, 7) == "American Staffordshire terrier…"
    assert shorten(STAFF, 99, 7) == STAFF


@pytest.mark.parametrize("room", [0.5, 1.0, 3.0])
def test_wrapped_lines_fit_and_lose_no_word_that_fits(room: float) -> None:
    text = "class 3 for any rotation up to 27.29°, or any scaling up to 9.10 %"
    lines = wrap(text, room, 8)
    assert max(width_in(line, 8) for line in lines) <= room
    if room > 0.5:
        assert " ".join(lines) == text
    assert wrap("  ", room, 8) == []


def test_letters_that_the_font_lacks_are_marked() -> None:
    assert shorten("犬 dog\n\x07\udc80", 9, 8) == "? dog ??"
    assert wrap("犬 dog", 9, 8) == ["? dog"]


def test_classes_without_a_name_that_can_be_written_go_by_number() -> None:
    names = ["tench", "犬", " ", "great\n grey  owl", "naïve café"]
    shown = [class_label(index, names) for index in range(6)]
    assert shown == ["tench", "class 1", "class 2", "great grey owl", "naïve café", "class 5"]
    assert class_label(0, None) == "class 0"
