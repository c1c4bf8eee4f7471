"""`deformrs verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from deformrs.cli.defaults import named_options, options_of
from deformrs.cli.jobs import load_model_of_run, smooth_as
from deformrs.cli.options import ModelOptions, SmoothingOptions, trust_code_option
from deformrs.cli.terminal import echo
from deformrs.data.loading import certified_data
from deformrs.errors import DeformRSError, InputError
from deformrs.models import LoadedModel
from deformrs.runs import CERTIFICATES, CONFIG, StoredRun, read_run, runs_in
from deformrs.runs.files import stored_bytes
from deformrs.specs import python_files
from deformrs.verification import FALSE_ALARM, check_methods, verify_counts


@click.command()
@click.argument(
    "folders", metavar="RUNS...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--images",
    "some",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How many images of each run are sampled again; they are chosen at random.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Draw all samples of these images again, however many they are.  [only those that select "
    "the class, if all would take long]",
)
@click.option("--no-model", is_flag=True, help="Check the files only.")
@click.option("--model", default="", help="Where the model is now, if it has moved.")
@click.option("--weights", help="Where its weights are now.")
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    help="Where the images are now, if they have moved.",
)
@trust_code_option
@click.option("--device", help="cpu, cuda, cuda:1.  [that of the run, if it is here]")
def verify(
    folders: tuple[Path, ...],
    some: int,
    full: bool,
    no_model: bool,
    model: str,
    weights: str | None,
    data: Path | None,
    trust_code: bool,
    device: str | None,
) -> None:
    """Check that runs are complete, unchanged, and what their models answer.

    Of each run the digests of configuration and lines are compared, and the number of lines with
    that of the requested images. Then model and images are loaded and compared with those that were
    certified, and some images are sampled again: their counts must be equal. On another kind of
    device, or with another version of PyTorch, where they cannot be, fresh samples must agree with
    them up to chance.

    A folder of runs, such as runs/sweep, stands for all of them. The exit code is 0 only if all
    checks passed.

    \b
    Examples:
      deformrs verify runs/quickstart
      deformrs verify runs/quickstart --images 2 --full
      deformrs verify runs/quickstart --no-model
    """
    given = ModelOptions(model, weights, device=device or "auto", trust_code=trust_code)
    runs = [run for folder in folders for run in runs_in(folder)]
    failed, unknown = [], 0
    for run in runs:
        checks = _Checks(run, given, data, some, full)
        if not checks.pass_all(no_model=no_model):
            failed.append(run)
        elif checks.run.requested is None:
            unknown += 1
    if failed:
        names = ", ".join(map(str, failed))
        echo(f"error: {len(failed)} of {len(runs)} runs not verified: {names}", err=True)
        raise click.exceptions.Exit(1)
    what = "files verified, no model was run" if no_model else "verified"
    but = f"; whether {unknown} of them lack lines at the end is not known" if unknown else ""
    echo(f"{what}: {len(runs)} run{'s' * (len(runs) > 1)}{but}")


@dataclass
class _Checks:
    """The checks of one run, in order: later ones use what earlier ones have loaded."""

    folder: Path
    given: ModelOptions
    moved: Path | None
    some: int
    full: bool
    run: StoredRun = field(init=False)
    model: ModelOptions = field(init=False)
    smoothing: SmoothingOptions = field(init=False)
    loaded: LoadedModel = field(init=False)

    def pass_all(self, *, no_model: bool) -> bool:
        """Print a line for each check; return whether all passed."""
        echo(str(self.folder))
        checks: dict[str, Callable[[], str]] = {
            "lines": self.check_lines,
            "complete": self.check_complete,
            "options": self.check_options,
        }
        if no_model:
            checks["options"] = self.check_options_without_code
        else:
            checks |= {"model": self.check_model, "counts": self.check_counts}
        failed: list[str] = []
        for name, check in checks.items():
            if failed not in ([], ["complete"]):
                words = "not checked"
            else:
                try:
                    words = check()
                except (DeformRSError, OSError) as error:
                    failed.append(name)
                    words = f"FAILED: {error}"
            echo(f"  {name:<9} {words}")
        return not failed

    def check_lines(self) -> str:
        """Check the digest of every line, which covers the configuration too, and its bound."""
        self.run = read_run(self.folder)
        if not self.run.results:
            raise InputError(
                str(self.folder / CERTIFICATES),
                "without a line",
                "must hold certified images",
                "run deformrs certify",
            )
        check_methods(self.run)
        return f"{len(self.run):,}, each with the digest of its content and of {CONFIG}"

    def check_complete(self) -> str:
        """Check that every requested image has its line."""
        found, requested = len(self.run), self.run.requested
        if requested is None:
            # Of an older run, which does not record it, an unfinished last line still shows.
            content = stored_bytes(self.folder / CERTIFICATES) or b"\n"
            requested = None if content.endswith(b"\n") else found + 1
        if requested is None:
            return "not known: this run does not record which images were requested"
        if found != requested:
            raise InputError(
                str(self.folder / CERTIFICATES),
                f"incomplete ({found:,} of {requested:,} images)",
                "must have a line for each image that was requested",
                "repeat deformrs certify to certify the rest; or restore the file",
            )
        return f"{found:,} of {requested:,} images"

    def check_options(self) -> str:
        """Check that the options of the run name what its results are bound to."""
        if named_options(self.run.config) is None:
            raise InputError(
                str(self.folder / CONFIG),
                "of a run that was made in Python from objects",
                "must name model, deformation and noise as text",
                "verify it in Python by verify_counts, or only its files by --no-model",
            )
        nothing = SmoothingOptions("", "")
        self.model, self.smoothing = options_of(self.folder, self.given, nothing, moved=True)
        return "deformation, noise and padding are those of the lines"

    def check_options_without_code(self) -> str:
        """Check the options unless that takes the code of a deformation."""
        options = named_options(self.run.config)
        if options is None:
            return "not checked: the run was made in Python from objects"
        if python_files(str(options["deformation"])) and not self.given.trust_code:
            return "not checked: the deformation is code, which only --trust-code executes"
        self.given = dataclasses.replace(self.given, trust_code=True)  # the model is not loaded
        return self.check_options()

    def check_model(self) -> str:
        """Load the model, and check that its files and weights are those that were certified."""
        if self.given.device == "auto":
            kind = str(self.run.config["device"]).partition(" ")[0]
            here = kind != "cuda" or torch.cuda.is_available()
            self.model = dataclasses.replace(self.model, device=kind if here else "auto")
        self.loaded = load_model_of_run(self.folder, self.model)
        return "files, weights and preparation are those that were certified"

    def check_counts(self) -> str:
        """Check all images, and sample some of them again."""
        config: Any = self.run.config
        images = certified_data(self.run, self.moved)
        first = torch.from_numpy(images[self.run[0].index][0])
        execution = {"batch_size": config["batch_size"], "compile": config.get("compiled", "no")}
        classifier = smooth_as(
            self.loaded, dataclasses.replace(self.model, **execution), self.smoothing, first
        )
        done = verify_counts(classifier, images, self.run, some=self.some, full=self.full)
        words = f"{len(self.run):,} images are unchanged; {done.images:,} sampled again: "
        if done.differences:
            return (
                f"{words}not compared exactly ({done.differences}); {done.samples:,} fresh samples "
                f"agree with the stored counts (false alarms: at most {FALSE_ALARM:g})"
            )
        words += f"{done.samples:,} samples, the same counts"
        return words if done.estimated else f"{words} of those that select the class (all: --full)"
