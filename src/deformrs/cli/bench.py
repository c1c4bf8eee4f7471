"""`deformrs bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from deformrs.cli.parameters import AutomaticNumber, Word, check_writable

if TYPE_CHECKING:
    from rich.table import Table

    from deformrs.cli.throughput import Row
    from deformrs.config import Config


@click.command()
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@click.option(
    "--precision",
    type=Word("auto", "float32", "bfloat16", "float16"),
    default="auto",
    show_default=True,
    help="Precision of the network; auto is bfloat16 where the device supports it natively.",
)
@click.option(
    "--compile",
    "compiled",
    type=Word("no", "default", "max-autotune"),
    default="no",
    show_default=True,
    help="Mode of torch.compile, for certification and the bare network alike.",
)
@click.option("--network", "networks", multiple=True, help="Measure only this network; repeatable.")
@click.option("--family", "families", multiple=True, help="Measure only this family; repeatable.")
@click.option("--n", type=click.IntRange(min=1), help="Samples per image.  [by network]")
@click.option(
    "--batch-size",
    type=AutomaticNumber(),
    default="auto",
    show_default=True,
    help="Samples per batch; auto is set by the network.",
)
@click.option(
    "--images", type=click.IntRange(min=1), help="Images that share batches.  [by network]"
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A new JSON file, updated after every row."
)
def bench(
    device: str,
    precision: Literal["auto", "float32", "bfloat16", "float16"],
    compiled: Literal["no", "default", "max-autotune"],
    networks: tuple[str, ...],
    families: tuple[str, ...],
    n: int | None,
    batch_size: int | None,
    images: int | None,
    out: Path | None,
) -> None:
    """Measure how fast this machine certifies.

    For each network and family: samples per second of certification, of the bare network on
    images already on the device, and of a naive loop, measured in turns. Networks are small on
    a CPU and of realistic size on a GPU; their weights are random.

    \b
    Examples:
      deformrs bench --network small_cnn --family rotation
      deformrs bench --device cuda --compile max-autotune --out bench.json
    """
    from rich.console import Console

    from deformrs.cli.progress import step
    from deformrs.cli.terminal import print_plain
    from deformrs.cli.throughput import machine, measure, select_cases
    from deformrs.errors import ModelError
    from deformrs.execution import chosen_device
    from deformrs.models.inference import natural_precision
    from deformrs.runs import write_atomically

    check_writable("--out", out)
    if out is not None and out.exists():
        raise click.BadParameter(f"{str(out)!r} exists; name a new file", param_hint="--out")
    place = chosen_device(device)
    cases = select_cases(
        place,
        natural_precision(place) if precision == "auto" else precision,
        compiled,
        networks=networks,
        families=families,
        batch_size=batch_size,
        n=n,
        images=images,
    )
    console = Console(highlight=False)
    here = machine(place)
    rows: list[Row] = []
    with step(console, "measuring", len(cases)) as advance:
        for case in cases:
            advance(len(rows), f"{case.network}, {case.family}")
            rows.append(measure(case))
            if out is not None:
                content = {"rows": [row.to_json() for row in rows], "machine": here}
                write_atomically(out, json.dumps(content, indent=2) + "\n")
        advance(len(rows), "")
    console.print(_table(rows, here))
    for row in rows:
        for kind, text in (("failed", row.error), ("note", row.warning)):
            if text is not None:
                line = f"{kind}: {row.case.network}, {row.case.family}: {text}"
                print_plain(console, line)
    failures = sum(row.error is not None for row in rows)
    if failures:
        raise ModelError(
            "the benchmark",
            f"incomplete: {failures} of {len(rows)} rows failed",
            "must run every network and family",
            "leave out those that failed, with --network and --family",
        )


def _table(rows: Sequence[Row], machine: Config) -> Table:
    from rich import box
    from rich.table import Table

    case = rows[0].case
    mode = "not compiled" if case.compiled == "no" else f"compiled ({case.compiled})"
    table = Table(
        title=f"samples/s on {machine['device']} ({machine['cpu']}, {machine['threads']} threads), "
        f"{case.precision}, {mode}, torch {machine['torch']}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("network", overflow="fold")
    table.add_column("family", no_wrap=True)
    for name in ("certified", "bare", "of bare", "naive", "times naive"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = (
            ("failed", *[""] * 4)
            if row.error is not None
            else (
                f"{row.samples_per_s:,.0f}",
                f"{row.bare_samples_per_s:,.0f}",
                f"{100 * (row.ratio_to_bare or 0):.1f} %",
                f"{row.naive_samples_per_s:,.0f}",
                f"{row.ratio_to_naive:.1f}",
            )
        )
        table.add_row(row.case.network, row.case.family, *figures)
    return table
