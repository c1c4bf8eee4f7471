"""A run as the log that the analysis scripts of randomized smoothing read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deformrs.errors import UnsupportedError
from deformrs.rounding import format_down
from deformrs.runs import Result

HEADER = ("idx", "label", "predict", "radius", "correct", "time")
ABSTAIN = -1
# More decimals than a double has: what is read back is the radius itself, or a hair less.
_DECIMALS = 17


def export_tsv(results: Sequence[Result], times: Mapping[int, float]) -> str:
    """One line an image, tab-separated; `times` are seconds by index, empty where unknown.

    The radius is in the package's own unit (radians, half sides, fractions).

    Guarantee: no radius is above the certified one, neither as written nor as a float read back.
    """
    lines = ["\t".join(HEADER)]
    lines += ["\t".join(_values(result, times.get(result.index))) for result in results]
    return "\n".join(lines) + "\n"


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(3725.5)
    '1:02:05.500000'
    """
    micro = max(0, round(seconds * 10**6))
    minutes, rest = divmod(micro, 60 * 10**6)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10**6:02d}.{rest % 10**6:06d}"


def _values(result: Result, seconds: float | None) -> tuple[str, ...]:
    certificate = result.certificate
    if len(certificate.radii) != 1:
        families = ", ".join(block.family for block in certificate.space.blocks)
        raise UnsupportedError(
            "the log",
            f"asked of a run over {families} together",
            "has one radius an image",
            "use the report's tables or results_frame",
        )
    prediction = ABSTAIN if certificate.prediction is None else certificate.prediction
    radius = format_down(certificate.radius, _DECIMALS).rstrip("0")
    return (
        str(result.index),
        str(result.label),
        str(prediction),
        radius + "0" if radius.endswith(".") else radius,
        str(int(result.correct)),
        "" if seconds is None else clock(seconds),
    )
