"""The options of training, which `train` and `sweep` share."""

from __future__ import annotations

from collections.abc import Callable

import click

from deformrs.cli.options import Command, Word, bundle, needed, preparation_options


def start_options(*, required: bool) -> Callable[[Command], Command]:
    """`--model` and its pictures: the argument `start`, a `StartOptions`."""
    return bundle(
        "start",
        "training_options.StartOptions",
        click.option(
            "--model",
            **needed(required),
            help="small_cnn, resnet18, resnet18:width=32 (small pictures), resnet50, timm:NAME, "
            "torchvision:NAME, net.py:build, or a run folder to go on from.",
        ),
        click.option("--weights", help="A .safetensors or .pth state dict to begin with."),
        click.option("--pretrained", is_flag=True, help="Begin with the published weights."),
        *preparation_options(),
    )


def training_options() -> Callable[[Command], Command]:
    """How it is trained: the argument `training`, a `TrainingOptions`."""
    return bundle(
        "training",
        "training_options.TrainingOptions",
        click.option(
            "--recipe", default="fast", show_default=True, help="fast, paper, or your own .toml."
        ),
        click.option("--epochs", type=int, help="In place of the recipe's."),
        click.option("--batch-size", type=int, help="Likewise; over all processes."),
        click.option("--learning-rate", type=float, help="Likewise."),
        click.option("--weight-decay", type=float, help="Likewise."),
        click.option("--copies", type=int, help="Deformed copies of a picture in a step."),
        click.option(
            "--tilt",
            type=float,
            help="Let copies that go wrong count more, e.g. 2; 0 is the plain mean.",
        ),
        click.option(
            "--consistency",
            type=float,
            help="Weight of consistency regularisation; 10 raises accuracy at large radii.",
        ),
        click.option("--entropy", type=float, help="Weight of its entropy term."),
        click.option(
            "--augment",
            default="auto",
            show_default=True,
            help="auto, none, crop:4+flip, zoom:0.25+flip.",
        ),
        click.option(
            "--hold-out",
            default=0.0,
            show_default=True,
            help="Share of the training pictures that chooses the best epoch, e.g. 0.05.",
        ),
        click.option("--seed", default=0, show_default=True, help="Of weights, order and noise."),
        click.option(
            "--precision",
            type=Word("auto", "float32", "bfloat16"),
            default="auto",
            show_default=True,
            help="In which it computes; weights are kept in float32.",
        ),
        click.option(
            "--compile",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="By torch.compile.",
        ),
        click.option(
            "--hold",
            type=Word("auto", "yes", "no"),
            default="auto",
            show_default=True,
            help="All pictures in memory, or read from the disk as they are needed.",
        ),
        click.option("--workers", type=int, help="Processes that read them.  [one a core]"),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1."),
        click.option("--devices", default=1, show_default=True, help="GPUs, or CPU processes."),
        click.option("--nodes", default=1, show_default=True, help="Machines."),
        click.option("--strategy", default="ddp", show_default=True, help="Of Lightning Fabric."),
        click.option(
            "--checkpoint-seconds",
            default=60.0,
            show_default=True,
            help="What a kill may cost at most, or an epoch of several processes.",
        ),
        click.option("--tensorboard/--no-tensorboard", default=True, show_default=True),
    )
