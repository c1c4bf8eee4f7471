"""`deformrs bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from deformrs.cli.options import BatchSize, Word, check_writable, split_list


@click.command()
@click.option(
    "--size",
    type=Word("auto", "small", "large"),
    default="auto",
    show_default=True,
    help="How much is done: auto is large on a GPU, else small.",
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1.")
@click.option(
    "--precision",
    type=Word("auto", "float32", "bfloat16", "float16"),
    default="auto",
    show_default=True,
    help="In which networks are executed: auto is bfloat16 where the device computes in it.",
)
@click.option(
    "--compile",
    "compiled",
    type=Word("no", "default", "max-autotune"),
    default="no",
    show_default=True,
    help="How torch.compile is used, by certification and by the bare network alike.",
)
@click.option("--only", help="Parts of it: rows,samples,cost,paths.  [all]")
@click.option("--network", "networks", multiple=True, help="Measure the speed of this one only.")
@click.option("--family", "families", multiple=True, help="Measure the speed of this one only.")
@click.option("--repeats", type=int, help="Of which the median is taken.  [of the size]")
@click.option("--batch-size", type=BatchSize(), default="auto", show_default=True, help="Samples.")
@click.option("--n", type=int, help="Samples an image.  [of the size]")
@click.option("--images", type=int, help="Images that share batches.  [of the size]")
@click.option("--model", default="", help="A trained run, to count samples with.  [one for digits]")
@click.option("--data", default="", help="Its images.  [the test split of what it learnt]")
@click.option("--deformation", default="", help="How images move.  [as it was trained]")
@click.option("--noise", default="", help="And how far at random.  [as it was trained]")
@click.option("--data-root", help="Where downloads are kept.  [$DEFORMRS_DATA]")
@click.option("--subset", type=int, help="Images that are certified both ways.  [of the size]")
@click.option("--whole", is_flag=True, help="Decide for all images too, not only the subset.")
@click.option("--radius", default="10deg", show_default=True, help="Decided alone.")
@click.option(
    "--radii", default="0deg,10deg,30deg,45deg", show_default=True, help="Decided together."
)
@click.option("--adaptive", default="1deg", show_default=True, help="Gain that is not worth more.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A JSON file, written after every figure; one of this machine is added to. With --plot "
    "the image.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Measure nothing: draw the cost in this JSON file, as SVG beside it.",
)
@click.option(
    "--count",
    "counted",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Measure nothing: count the samples of this run; again for more of its classifier.",
)
@click.option("--profile", is_flag=True, help="Measure no speed: show where the time goes.")
def bench(
    size: str,
    device: str,
    precision: Literal["auto", "float32", "bfloat16", "float16"],
    compiled: Literal["no", "default", "max-autotune"],
    only: str | None,
    networks: tuple[str, ...],
    families: tuple[str, ...],
    repeats: int | None,
    batch_size: int | None,
    n: int | None,
    images: int | None,
    model: str,
    data: str,
    deformation: str,
    noise: str,
    data_root: str | None,
    subset: int | None,
    whole: bool,
    radius: str,
    radii: str,
    adaptive: str,
    out: Path | None,
    plot: Path | None,
    counted: tuple[Path, ...],
    profile: bool,
) -> None:
    """How fast does this machine certify?

    Speed: samples a second of certification, of the bare network on images that lie ready, and
    of a plain loop, measured in turns. Samples: how many a fixed number takes, and how many the
    questions need. Cost: time and memory as samples, image sides and images grow. Paths: how
    often a sample is answered otherwise when it is executed otherwise.

    \b
    Examples:
      deformrs bench --only rows --network small_cnn --family rotation --n 500 --out bench.json
      deformrs bench --profile --network small_cnn --family rotation
    """
    from rich.console import Console

    from deformrs.benchmarks.asked import Asked

    console = Console(highlight=False)
    if profile and (out or plot or counted):
        raise click.UsageError("--profile only prints: leave --out, --plot and --count out")
    check_writable("--out", out)
    if counted:
        if plot:
            raise click.UsageError("--count measures nothing and draws nothing: leave --plot out")
        from deformrs.benchmarks.counted import show_runs

        show_runs(counted, split_list(radii), out, console)
        return
    if plot is not None:
        from deformrs.benchmarks.plot import draw_cost

        written = draw_cost(plot, out)
        console.print(f"written: {written}", markup=False, soft_wrap=True)
        return
    asked = Asked(
        size=size,
        device=device,
        precision=precision,
        compiled=compiled,
        only=split_list(only),
        networks=networks,
        families=families,
        repeats=repeats,
        batch_size=batch_size,
        n=n,
        images=images,
        model=model,
        data=data,
        deformation=deformation,
        noise=noise,
        data_root=data_root,
        subset=subset,
        whole=whole,
        radius=radius,
        radii=split_list(radii),
        adaptive=adaptive,
    )
    if profile:
        asked.show_profile(console)
    else:
        asked.run(out, console)
