"""What is needed of a run to compare it with the paper; its results can be released afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from deformrs.errors import InputError
from deformrs.noise import NoiseLaw
from deformrs.noise.scaled import ScaledLaw
from deformrs.regions import Region
from deformrs.report.captions import set_words, stopping_words
from deformrs.report.curves import Curve
from deformrs.report.export import clock
from deformrs.report.formats import one_line
from deformrs.report.groups import Group, Member, lookup, make_groups
from deformrs.report.radii import Radius
from deformrs.report.summary import RegionCount, count_region, summarise
from deformrs.runs import Result, StoredRun, read_times
from deformrs.space import Block
from deformrs.units import Size, Unit
from paper.numbers import SIZES, PaperTable, paper_table

EPOCHS, TRAINING, WEIGHTS = "epochs.jsonl", "training.json", "model.safetensors"
Route = Literal["affine", "composed"]
ROUTES: tuple[Route, ...] = ("affine", "composed")
UNKNOWN = "–"
_CURVE_STEPS = 200
# Above the square root of 0.1, so that |t|^2 <= 0.1 is all inside.
_SHIFT = "shift<=0.3162277661"


@dataclass(frozen=True)
class Composition:
    """A composition of the paper. `published` is its region in numbers.csv.

    `orders` are regions of the same maps, one for each order in which the image may undergo them;
    the first stands for all.
    """

    name: str
    published: str
    orders: tuple[str, ...]

    @property
    def text(self) -> str:
        """The region as text."""
        return self.orders[0]

    def count(self, results: Sequence[Result]) -> RegionCount:
        """Return how many images are certified for the composition.

        Guarantee: counts only correct images whose certificate covers the whole composition.
        """
        # An affine map is the same in every order; a composed run has an order of its own.
        families = [block.family for block in results[0].certificate.space.blocks]
        orders = self.orders[:1] if families == ["affine"] else self.orders
        counts = [count_region(results, Region.parse(text)) for text in orders]
        return next((count for count in counts if count.count is not None), counts[0])

    def decided_by(self, member: Member) -> bool:
        """Return whether each image had its samples for the composition."""
        stop = member.early_stop
        if stop is None or not member.only_decided:
            return True
        texts = {"".join(text.split()) for text in stop.regions}
        return any("".join(order.split()) in texts for order in self.orders)


COMPOSITIONS = (
    # The paper's map is R(theta) times the shear: the image is turned first. The other order
    # has other maps.
    Composition(
        "rotation+shear",
        "rotations up to 2° with shears from 0 to 2 %",
        ("rotation<=2deg, shear=0%..2%",),
    ),
    # The paper's map is p -> alpha R(theta) p + t. These orders give the same set of maps: a turn
    # changes no length of a shift, but a zoom that comes before the shift would.
    Composition(
        "rotation+scaling+translation",
        "rotations up to 10° with zooms from 0.8 to 1.2 and shifts of a squared length up to 0.1",
        (
            f"{_SHIFT}, rotation<=10deg, scale=0.8..1.2",
            f"{_SHIFT}, scale=0.8..1.2, rotation<=10deg",
            f"rotation<=10deg, {_SHIFT}, scale=0.8..1.2",
        ),
    ),
)


@dataclass(frozen=True)
class Provenance:
    """Settings and costs of a run; None is what its folder does not record."""

    epochs: int | None
    initial_run: str
    """The run whose weights training began with, empty if it began otherwise."""
    training_seconds: float | None
    images: int | None
    """How many images the dataset has."""
    n: int
    """The largest number of samples per image."""
    samples: int
    """All samples that were drawn, in both stages."""
    until: str
    """When sampling stopped early, in words; empty if it never did."""
    device: str
    precision: str
    seconds: float | None
    """The time of the images whose time is known."""
    timed: int
    """How many images these are."""


@dataclass(frozen=True)
class RunCounts:
    """The counts of one run. `family` is the table of the paper that it belongs to, or None."""

    folder: Path
    dataset: str
    deformation: str
    family: str | None
    table: PaperTable | None
    unpublished: str
    """Why the paper has no table for it."""
    block: Block | None
    sizes: tuple[Size, ...]
    noise: str
    scale: str
    """The noise scale in the unit of numbers.csv; else the noise as it was given."""
    scale_label: str
    order: tuple[str, float]
    """By which runs are sorted: the law, then its scale."""
    total: int
    plain: int | None
    certified: dict[Fraction, int]
    """How many are correct and certified, at each radius of the paper, in the displayed unit."""
    decided: frozenset[Fraction]
    """The radii of the paper that each image had its samples for."""
    average: Fraction
    average_is_bound: bool
    """Whether only queries were decided, so that the average radius is a lower bound."""
    curve: Curve | None
    route: Route | None
    compositions: dict[str, RegionCount]
    """The count for each composition, by its name, where the run has one."""
    decided_compositions: frozenset[str]
    alpha: float
    together: str
    """What holds of all its certificates together, in words."""
    provenance: Provenance
    radii_held: dict[tuple[int, str], int]
    """At how many of the radii each image is certified, by its index and digest."""
    classifier: str
    """The smoothed classifier: model, deformation and noise as JSON."""

    @property
    def name(self) -> str:
        """The dataset and the folder: "mnist/rotation-54"."""
        return f"{self.dataset}/{one_line(self.folder.resolve().name)}"


def count_run(run: StoredRun) -> RunCounts:
    """Return the counts of a run on test images that the paper has numbers for.

    Guarantee: no count and no radius is above that of the run's results.
    """
    (group,) = make_groups([run])
    member, dataset = group.members[0], _dataset(run, group)
    block, name = group.block, str(group.deformation["name"])
    no_table = block is None or group.norm == 1
    table = None if no_table else paper_table(dataset, group.deformation)
    numbers = () if table is None else table.radii
    radii = [] if block is None else [Radius.from_displayed(r, block) for r in numbers]
    held = {} if block is None else _radii_held(run, radii)
    route: Route | None = {"affine": "affine", "compose": "composed"}.get(name)  # type: ignore[assignment]
    answers = [] if route is None else [(c.name, c.count(run.results)) for c in COMPOSITIONS]
    scale, scale_label = _scale(member, block)
    summary = summarise(run.results)
    return RunCounts(
        folder=run.folder,
        dataset=dataset,
        deformation=group.family,
        family=None if table is None else name,
        table=table,
        unpublished="" if table is not None else _unpublished(group),
        block=block,
        sizes=group.sizes,
        noise=member.short_noise,
        scale=scale,
        scale_label=scale_label,
        order=_order(member),
        total=summary.total,
        plain=summary.plain,
        certified={r: sum(n > k for n in held.values()) for k, r in enumerate(numbers)},
        decided=frozenset(
            number for number, radius in zip(numbers, radii, strict=False) if member.decides(radius)
        ),
        average=summary.averages[0],
        average_is_bound=member.only_decided,
        curve=None if member.curve is None else member.curve.thinned(numbers, most=_CURVE_STEPS),
        route=route,
        compositions={name: answer for name, answer in answers if answer.count is not None},
        decided_compositions=frozenset(c.name for c in COMPOSITIONS if c.decided_by(member)),
        alpha=member.first.alpha,
        together=set_words(run),
        provenance=_provenance(member),
        radii_held=held,
        classifier=json.dumps(
            [run.config.get(key) for key in ("model", "deformation", "noise", "padding")],
            sort_keys=True,
        ),
    )


def duration(seconds: float | None) -> str:
    """Return hours, minutes and seconds, or a dash if they are unknown.

    >>> duration(3725.5)
    '1:02:05'
    """
    return UNKNOWN if seconds is None else clock(seconds).partition(".")[0]


def _radii_held(run: StoredRun, radii: list[Radius]) -> dict[tuple[int, str], int]:
    """Radii rise, so the number of them at which an image is certified determines which ones."""
    sizes = {result.certificate.space.size for result in run.results}
    values = {size: [radius.value(size) for radius in radii] for size in sizes}
    return {
        (result.index, result.pixels): sum(
            result.holds(value) for value in values[result.certificate.space.size]
        )
        for result in run.results
    }


def _dataset(run: StoredRun, group: Group) -> str:
    name, split = (lookup(run.config, "data", key) for key in ("name", "split"))
    if group.data in SIZES and split in (None, "test"):
        return group.data
    raise InputError(
        f"the data of {run.folder}",
        f"{name}{'' if split is None else f', split {split}'}",
        f"must be what the paper has numbers for, the test images of {', '.join(SIZES)}",
        "leave this run out",
    )


def _unpublished(group: Group) -> str:
    if group.block is None:
        return "the paper has no composition of these families in this order"
    if group.norm == 1:
        return "its radii are in the l1 norm, the paper's in the l2 norm"
    return "the paper has no table of this deformation"


def _scale(member: Member, block: Block | None) -> tuple[str, str]:
    """The noise scale in the unit of numbers.csv, and with its unit."""
    law = member.first.law
    if block is not None and isinstance(law, ScaledLaw) and isinstance(law.scale, float):
        scale = math.degrees(law.scale) if block.unit is Unit.ANGLE else law.scale
        displayed = 100 * scale if block.unit is Unit.FRACTION else scale
        symbol = " half sides" if block.unit is Unit.LENGTH else block.unit.symbol
        return f"{scale:.6g}", f"{displayed:.6g}{symbol}"
    given = lookup(member.run.config, "options", "noise")
    text = given if isinstance(given, str) else repr(law)
    return text, text


def _order(member: Member) -> tuple[str, float]:
    law = member.first.law
    name = law.name if isinstance(law, NoiseLaw) else ""
    scale = law.scale if isinstance(law, ScaledLaw) else None
    return name, scale if isinstance(scale, float) else 0.0


def _provenance(member: Member) -> Provenance:
    run = member.run
    config, counts = run.config, [result.certificate.counts for result in run.results]
    epochs, training_seconds = _training(run.folder)
    times = read_times(run.folder)
    known = [times[result.index] for result in run.results if result.index in times]
    n, images = config.get("n"), lookup(config, "data", "pictures")
    return Provenance(
        epochs=epochs,
        initial_run=_initial_run(run.folder),
        training_seconds=training_seconds,
        images=images if isinstance(images, int) else None,
        n=n if isinstance(n, int) else max(count.n for count in counts),
        samples=sum(count.n0 + count.n for count in counts),
        until=stopping_words(member),
        device=str(config.get("device") or UNKNOWN),
        precision=str(lookup(config, "model", "precision") or UNKNOWN),
        seconds=math.fsum(known) if known else None,
        timed=len(known),
    )


def _training(folder: Path) -> tuple[int | None, float | None]:
    """The number of epochs, and the seconds of all."""
    path = folder / EPOCHS
    if not path.is_file():
        return None, None
    seconds = [json.loads(line)["seconds"] for line in path.read_text("utf-8").splitlines()]
    return len(seconds), math.fsum(seconds)


def _initial_run(folder: Path) -> str:
    path = folder / TRAINING
    if not path.is_file():
        return ""
    metadata = json.loads(path.read_text("utf-8"))
    model = lookup(metadata, "options", "model")
    # Weights of that name are those of a folder; else a network has its own name.
    of_run = lookup(metadata, "model", "files", WEIGHTS) is not None
    return Path(model).name if of_run and isinstance(model, str) else ""
