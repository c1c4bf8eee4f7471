"""A benchmark as people ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from deformrs.benchmarks.plan import SIZES, Case, Execution, Size, chosen_cases, chosen_parts
from deformrs.benchmarks.profiling import profile_case
from deformrs.benchmarks.questions import Questions
from deformrs.benchmarks.running import Bench, run_bench
from deformrs.benchmarks.shown import profile_lines
from deformrs.benchmarks.subject import SubjectOptions
from deformrs.cli.arguments import chosen_device
from deformrs.config import Config
from deformrs.errors import InputError
from deformrs.execution import Compiled
from deformrs.models.precision import PrecisionAsked, natural_precision


@dataclass(frozen=True)
class Asked:
    """The options of `deformrs bench`. What is None follows from the size, or from the model."""

    size: str = "auto"
    device: str = "auto"
    precision: PrecisionAsked = "auto"
    compiled: Compiled = "no"
    only: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    repeats: int | None = None
    batch_size: int | None = None
    n: int | None = None
    images: int | None = None
    model: str = ""
    data: str = ""
    deformation: str = ""
    noise: str = ""
    data_root: str | None = None
    subset: int | None = None
    whole: bool = False
    radius: str = "10deg"
    radii: tuple[str, ...] = ("0deg", "10deg", "30deg", "45deg")
    adaptive: str = "1deg"

    def run(self, out: Path | None, console: Console) -> Config:
        """Measure what was asked for; see `run_bench`."""
        return run_bench(self.bench(), out, console)

    def bench(self) -> Bench:
        """With everything looked at that can be wrong, before anything is measured."""
        for name in ("data", "deformation", "noise"):
            if getattr(self, name) and not self.model:
                raise InputError(
                    f"--{name}",
                    repr(getattr(self, name)),
                    "is of use only with a network of its own",
                    "add --model RUN",
                )
        size, how = self._size, self._how
        return Bench(
            size,
            tuple(self._cases),
            chosen_parts(self.only),
            how,
            SubjectOptions(
                self.model,
                self.data,
                self.data_root,
                self.deformation,
                self.noise,
                self.batch_size,
            ),
            Questions(
                n=size.fixed_n if self.n is None else self.n,
                subset=size.subset if self.subset is None else self.subset,
                radius=self.radius,
                radii=self.radii,
                tolerance=self.adaptive,
                whole=self.whole,
            ),
        )

    def show_profile(self, console: Console) -> None:
        """Print where the time goes in the first network and family of those asked for."""
        case = self._cases[0]
        family = case.families[0]
        found = profile_case(case, family, self._how)
        console.print(f"{case.network}, {family}, batch {case.batch_size}:", markup=False)
        for line in profile_lines(found):
            console.print(line, markup=False, soft_wrap=True)

    @property
    def _place(self) -> torch.device:
        return chosen_device(self.device)

    @property
    def _size(self) -> Size:
        natural = "large" if self._place.type == "cuda" else "small"
        return SIZES[natural if self.size == "auto" else self.size]

    @property
    def _how(self) -> Execution:
        precision = natural_precision(self._place) if self.precision == "auto" else self.precision
        repeats = self._size.repeats if self.repeats is None else self.repeats
        return Execution(str(self._place), precision, self.compiled, repeats)

    @property
    def _cases(self) -> list[Case]:
        return chosen_cases(
            self._size,
            networks=self.networks,
            families=self.families,
            batch_size=self.batch_size,
            n=self.n,
            images=self.images,
        )
