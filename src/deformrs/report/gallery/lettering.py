"""Words in figures: as wide as their place allows, and never read as formulas."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path

LEADING = 1.35
"""The distance of two lines in terms of the size of their letters."""
HINTING = 1.05
"""What letters may gain in width when they are fitted to pixels."""


@lru_cache(maxsize=2**12)
def width_in(text: str, points: float, bold: bool = False) -> float:
    """How wide that text stands at most, in inches."""
    font = FontProperties(size=points, weight="bold" if bold else "normal")
    width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return HINTING * width / 72


def line_in(points: float) -> float:
    """How high a line of that letter size stands, in inches."""
    return LEADING * points / 72


def shorten(text: str, room_in: float, points: float, bold: bool = False) -> str:
    """The text, or what fits of it with an ellipsis: whole names from a list, else letters.

    >>> shorten("great grey owl, great gray owl, Strix nebulosa", room_in=1.2, points=8)
    'great grey owl…'
    """
    text = _plain(text)
    if width_in(text, points, bold) <= room_in:
        return text
    names = text.split(", ")
    whole = [", ".join(names[:count]) + "…" for count in range(1, len(names))]
    letters = [names[0][:count].rstrip() + "…" for count in range(len(names[0]))]
    cuts = letters + whole  # from narrow to wide
    widest = bisect_right(cuts, room_in, key=lambda cut: width_in(cut, points, bold))
    return cuts[max(widest - 1, 0)]


def wrap(text: str, room_in: float, points: float, bold: bool = False) -> list[str]:
    """The text in lines that fit, broken between words; a word that is too long is shortened."""
    lines: list[str] = []
    for word in _plain(text).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_in(longer, points, bold) <= room_in:
            lines[-1] = longer
        else:
            lines.append(shorten(word, room_in, points, bold))
    return lines


def class_label(index: int, names: Sequence[str] | None) -> str:
    """The name of a class, or its number where it has none that the figures' font can write.

    >>> class_label(1, ["tench", "goldfish"]), class_label(2, ["tench", "goldfish"])
    ('goldfish', 'class 2')
    """
    name = " ".join(names[index].split()) if names is not None and index < len(names) else ""
    return name if name and name == _plain(name) else f"class {index}"


def write(
    figure: Figure,
    place_in: tuple[float, float],
    text: str,
    points: float,
    *,
    bold: bool = False,
    colour: str = "black",
    centred: bool = False,
) -> None:
    """Put one line on the figure, its top at that place: inches from the left and the bottom."""
    width, height = figure.get_size_inches()
    figure.text(
        place_in[0] / width,
        place_in[1] / height,
        text,
        fontsize=points,
        fontweight="bold" if bold else "normal",
        color=colour,
        ha="center" if centred else "left",
        va="top",
        parse_math=False,
    )


def _plain(text: str) -> str:
    """On one line, with a question mark for what the font has no letter for."""
    font = get_font(findfont(FontProperties()))
    text = " ".join(text.split())
    return "".join(letter if font.get_char_index(ord(letter)) else "?" for letter in text)
