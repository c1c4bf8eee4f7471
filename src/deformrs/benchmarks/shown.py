"""What was measured, as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from deformrs.benchmarks.fits import fit_line, fit_power
from deformrs.benchmarks.paths import Compared
from deformrs.benchmarks.profiling import Profile
from deformrs.benchmarks.rows import Row
from deformrs.benchmarks.samples import Used
from deformrs.config import Config


def rows_table(rows: Sequence[Row]) -> Table:
    """Samples a second: ours, bare, and the plain loop."""
    first = rows[0]
    compiled = "not compiled" if first.compiled == "no" else f"compiled ({first.compiled})"
    table = _plain_table(f"samples a second on {first.device}, {first.precision}, {compiled}")
    table.add_column("model", overflow="fold")
    table.add_column("family", no_wrap=True)
    for name in ("certified", "bare", "of bare", "naive", "times naive", "peak MB"):
        table.add_column(name, justify="right")
    for row in rows:
        if row.error is not None:
            table.add_row(row.model, row.family, "failed", *[""] * 5)
            continue
        table.add_row(
            row.model,
            row.family,
            f"{row.samples_per_s:,.0f}",
            f"{row.bare_samples_per_s:,.0f}",
            f"{100 * (row.ratio_to_bare or 0):.1f} %",
            f"{row.naive_samples_per_s:,.0f}",
            f"{row.ratio_to_naive:.1f}",
            f"{(row.peak_memory_bytes or 0) / 1e6:,.0f}",
        )
    return table


def used_table(used: Sequence[Used]) -> Table:
    """Samples an image for each way to ask, and what was certified."""
    table = _plain_table(f"samples used: {used[0].model} on {used[0].data}")
    radii = list(dict.fromkeys(radius for one in used for radius in one.certified))
    table.add_column("protocol", no_wrap=True)
    for name in ("n", "pictures", "each", "of fixed", *radii):
        table.add_column(name, justify="right")
    for one in used:
        table.add_row(
            one.protocol,
            f"{one.n:,}",
            f"{one.images:,}",
            f"{one.per_image:,.0f}",
            f"1/{1 / one.share_of_fixed:.1f}",
            *(_accuracy(one, radius) for radius in radii),
        )
    table.caption = "per cent right and certified at each radius asked (points from fixed)"
    table.caption_justify = "left"
    return table


def _accuracy(used: Used, radius: str) -> str:
    share, off = used.certified.get(radius), used.points_from_fixed
    if share is None:
        return ""
    return f"{share:.2f}" + ("" if off is None else f" ({off[radius]:+.2f})")


def in_seconds(value: float) -> str:
    """With a prefix that leaves a few digits before the point.

    >>> in_seconds(0.0000321)
    '32.1 µs'
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if abs(value) * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def in_bytes(value: float) -> str:
    """To a tenth, and never as minus nothing.

    >>> in_bytes(-0.001)
    '0.0 bytes'
    """
    return f"{round(value, 1) + 0.0:.1f} bytes"


def _plain_table(title: str) -> Table:
    """Without edges: it fits a narrow terminal."""
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )


def cost_line(name: str, points: Sequence[Config]) -> str:
    """A curve in one line."""
    across = {"time_against_side": "side", "time_against_images": "pictures"}.get(name, "n")
    up = "peak_memory_bytes" if name == "memory_against_n" else "seconds"
    xs, ys = ([float(str(point[key])) for point in points] for key in (across, up))
    title = name.replace("_", " ").replace("images", "pictures")
    if len(xs) < 2:
        return f"{title}: one point"
    if name == "time_against_side":
        return f"{title}: as side to the power {fit_power(xs, ys).slope:.2f}"
    line = fit_line(xs, ys)
    if name == "memory_against_n":
        return f"{title}: {in_bytes(line.slope)} a sample, {max(ys) / 1e6:,.0f} MB at most"
    if name == "time_against_images":
        return f"{title}, one radius decided: {in_seconds(line.slope)} an image"
    off = f"{100 * line.furthest:.1f} % off the line at most"
    return f"{title}: {in_seconds(line.slope)} a sample, {off}"


def path_line(compared: Compared) -> str:
    """How far a path is from the usual one."""
    share = f"{compared.differing:,} of {compared.samples:,}, {compared.per_million:g} a million"
    return f"answers that differ, {compared.path}: {share}"


def profile_lines(found: Profile) -> list[str]:
    """Where the time goes."""
    stages = ", ".join(f"{one.name} {100 * one.share:.1f} %" for one in found.stages)
    lines = [f"a batch in stages, each alone and not compiled: {stages}"]
    if found.busy is not None:
        lines.append(f"the device computes {100 * found.busy:.1f} % of the time")
    lines += [f"{100 * one.share:6.2f} %  {one.name[:100]}" for one in found.operations]
    return lines
